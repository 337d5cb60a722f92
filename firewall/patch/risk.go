package patch

import (
	"strings"

	"golang.org/x/net/publicsuffix"

	"sallyport/firewall"
)

// Never says why no entry can allow n: it is a name of the floor, or a suffix of a
// registry, which the file cannot hold.
func Never(n firewall.Name) (why string, never bool) {
	if n.IsZero() {
		return "is no host name, and an entry names hosts only", true
	}
	if rule, bad := n.OnFloor(); bad {
		return "can never be allowed: " + rule + " is for metadata services and internal names", true
	}
	if suffix, icann := publicsuffix.PublicSuffix(n.String()); icann && suffix == n.String() {
		return "is a public suffix, which no entry can name", true
	}
	return "", false
}

// ways are well-known hosts, with their subdomains, to which anybody can write or
// from which anybody can be reached. The list is from common knowledge and the
// sites' own descriptions, and cannot be whole; firewall.Name.UserContent and the
// private part of the public suffix list add the places where anybody can get a
// host or a bucket.
var ways = []struct{ what, hosts string }{
	{"a paste site: anybody can put text there", "gist.github.com gist.githubusercontent.com pastebin.com paste.ee dpaste.com dpaste.org hastebin.com " +
		"ghostbin.com rentry.co termbin.com ix.io sprunge.us privatebin.net controlc.com justpaste.it paste.debian.net paste.rs 0x0.st"},
	{"a file share: anybody can upload there", "transfer.sh file.io gofile.io wetransfer.com mega.nz mega.io mediafire.com catbox.moe tmpfiles.org " +
		"uguu.se bashupload.com dropbox.com dropboxusercontent.com drive.google.com docs.google.com onedrive.live.com 1drv.ms box.com"},
	{"a catcher of requests, which shows them to whoever asks", "webhook.site requestbin.com requestcatcher.com pipedream.net beeceptor.com hookbin.com " +
		"interact.sh oast.fun oast.pro oast.live oast.site oast.online oast.me burpcollaborator.net oastify.com canarytokens.com dnslog.cn"},
	{"a tunnel to anybody's machine", "ngrok.com serveo.net localhost.run localtunnel.me tunnelmole.com pinggy.io bore.pub"},
	{"a messenger: whoever has an account can send through it", "api.telegram.org discord.com discordapp.com slack.com chat.googleapis.com"},
	{"a mail API: whoever has a key can send through it", "api.sendgrid.com api.mailgun.net api.postmarkapp.com api.resend.com"},
}

// Risks says what speaks against allowing n, nothing for most names. That a name
// is a public resolver is for the policy to say: see firewall.ReasonDoH.
func Risks(n firewall.Name) []string {
	var risks []string
	if what := way(n.String()); what != "" {
		risks = append(risks, what)
	}
	under, what, known := n.UserContent()
	switch suffix, icann := publicsuffix.PublicSuffix(n.String()); {
	case known:
		risks = append(risks, "anybody can get a host under ."+under+": "+what)
	case suffix == n.String():
		risks = append(risks, "a public suffix, under which anybody can register")
	case !icann && strings.Contains(suffix, "."):
		risks = append(risks, "anybody can get a host under ."+suffix)
	}
	return risks
}

// way finds what is known of a host or of one that it is under.
func way(host string) string {
	for _, w := range ways {
		for known := range strings.FieldsSeq(w.hosts) {
			if host == known || strings.HasSuffix(host, "."+known) {
				return w.what
			}
		}
	}
	return ""
}
