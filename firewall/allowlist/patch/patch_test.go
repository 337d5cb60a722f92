package patch_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/txtar"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/allowlist/patch"
	"sallyport/firewall/review"
)

var update = flag.Bool("update", false, "write what the tests got to testdata")

func host(t testing.TB, s string, ports ...uint16) patch.Host {
	t.Helper()
	n, err := firewall.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return patch.Host{Name: n, Ports: ports}
}

// TestAllow runs testdata/*.txtar. Each begins with lines "policy host [port]...",
// has a file, and what comes of it: the difference, then a line for each host.
func TestAllow(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) < 5 {
		t.Fatalf("test data: %v, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			policy, hosts := ask(t, string(archive.Comment))
			in := archive.Files[0].Data
			p, err := patch.Allow(in, "in", policy, hosts)
			if err != nil {
				t.Fatal(err)
			}
			checkPatch(t, in, policy, p)
			got := inWords(in, p)
			if *update {
				archive.Files = append(archive.Files[:1], txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if want := string(archive.Files[1].Data); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func ask(t *testing.T, text string) (policy string, hosts []patch.Host) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		h := host(t, words[1])
		for _, w := range words[2:] {
			var port uint16
			if _, err := fmt.Sscan(w, &port); err != nil {
				t.Fatal(err)
			}
			h.Ports = append(h.Ports, port)
		}
		policy, hosts = words[0], append(hosts, h)
	}
	return policy, hosts
}

func inWords(in []byte, p *patch.Patch) string {
	var b strings.Builder
	b.Write(diff.Diff("in", in, "out", p.Text))
	for _, a := range p.Added {
		fmt.Fprintf(&b, "added %s to %s\n", a.Entry, a.Place)
	}
	for _, l := range p.Left {
		fmt.Fprintf(&b, "left %s: it %s\n", l.Host.Name, l.Why)
	}
	for _, c := range p.Changes {
		for _, r := range c.Opens {
			fmt.Fprintf(&b, "%s opens %s\n", c.Policy, r)
		}
	}
	return b.String()
}

// checkPatch requires that a patch takes nothing out of the file, parses, and opens
// what it says and nothing else.
func checkPatch(t *testing.T, in []byte, policy string, p *patch.Patch) {
	t.Helper()
	if !insertedOnly(string(in), string(p.Text)) {
		t.Errorf("the patch takes something out of the file:\n%s", diff.Diff("in", in, "out", p.Text))
	}
	before, err := allowlist.Parse(strings.NewReader(string(in)), "in")
	if err != nil {
		t.Fatal(err)
	}
	after, err := allowlist.Parse(strings.NewReader(string(p.Text)), "out")
	if err != nil {
		t.Fatalf("the patched file is not right: %v\n%s", err, p.Text)
	}
	asked := map[string]bool{}
	for _, a := range p.Added {
		asked[a.Host.Name.String()] = true
		is, _ := after.Policy(policy)
		for _, port := range a.Host.Ports {
			if d := is.Decide(a.Host.Name, port); !d.Allowed() {
				t.Errorf("%s:%d was added and is refused: %+v", a.Host.Name, port, d)
			}
		}
	}
	for _, c := range review.Diff(before.Policies, after.Policies) {
		if len(c.Closes) > 0 || c.Added || c.Removed || c.ECH != "" {
			t.Errorf("the patch does more than open: %+v", c)
		}
		for _, r := range c.Opens {
			if !asked[r.Host] || r.SubdomainsOnly || len(r.Private) > 0 {
				t.Errorf("policy %s opens %s, which nobody asked for", c.Policy, r)
			}
		}
	}
	if len(p.Added) == 0 && string(in) != string(p.Text) {
		t.Error("nothing was added, and the file is another")
	}
}

// insertedOnly reports whether b is a with something put in between.
func insertedOnly(a, b string) bool {
	for i := range len(a) {
		at := strings.IndexByte(b, a[i])
		if at < 0 {
			return false
		}
		b = b[at+1:]
	}
	return true
}

func TestAllowRefuses(t *testing.T) {
	if _, err := patch.Allow([]byte("version: 1\n"), "f", "p", nil); err == nil {
		t.Error("a wrong file has no error")
	}
	_, err := patch.Allow([]byte("version: 1\npolicies: {p: {allow: any}}"), "f", "q", nil)
	if err == nil || !strings.Contains(err.Error(), `no policy "q"; it has p`) {
		t.Errorf("the error is %v", err)
	}
}

func TestRisks(t *testing.T) {
	for name, want := range map[string]string{
		"api.example.com":           "",
		"registry.npmjs.org":        "",
		"mybucket.s3.amazonaws.com": "storage",
		"a.blob.core.windows.net":   "storage",
		"storage.googleapis.com":    "storage",
		"me.github.io":              "anybody can get a host under .github.io",
		"x.pages.dev":               "anybody can get a host under .pages.dev",
		"gist.github.com":           "paste site",
		"pastebin.com":              "paste site",
		"abc.ngrok.io":              "tunnel",
		"webhook.site":              "catcher",
		"co.uk":                     "public suffix",
		"notpastebin.com":           "",
		"pastebin.com.evil.example": "",
	} {
		got := strings.Join(review.Risks(host(t, name).Name), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("risks of %s: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]bool{"metadata.google.internal": true, "a.local": true, "co.uk": true, "example.com": false, "me.github.io": false, "github.io": false} {
		if _, never := review.Never(host(t, name).Name); never != want {
			t.Errorf("Never(%s) = %t", name, never)
		}
	}
	if _, never := review.Never(firewall.Name{}); !never {
		t.Error("no name at all could be allowed")
	}
}

// FuzzAllow requires that no file and no host make a patch that is not right.
func FuzzAllow(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range append(paths, "../../../allowlist.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if archive := txtar.Parse(data); len(archive.Files) > 0 {
			data = archive.Files[0].Data
		}
		f.Add(string(data), "new.github.com", true)
	}
	f.Fuzz(func(t *testing.T, text, name string, plain bool) {
		ps, err := allowlist.Parse(strings.NewReader(text), "in")
		if err != nil {
			return
		}
		n, err := firewall.ParseName(name)
		if err != nil {
			return
		}
		var ports []uint16
		if !plain {
			ports = []uint16{80, 443}
		}
		for _, policy := range ps.Names() {
			p, err := patch.Allow([]byte(text), "in", policy, []patch.Host{{Name: n, Ports: ports}})
			if err != nil {
				t.Fatal(err)
			}
			checkPatch(t, []byte(text), policy, p)
		}
	})
}
