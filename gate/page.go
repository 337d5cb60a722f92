package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/time/rate"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy"
)

// pageName is firewall.PageHost as the DNS gate and the forwarder compare it.
var pageName = func() firewall.Name {
	n, err := firewall.ParseName(firewall.PageHost)
	if err != nil {
		panic(err)
	}
	return n
}()

// The bounds of the page. What a program needs is a few requests in a run.
const (
	pageRate    = 20 // requests a second
	pageBurst   = 40
	maxAllowed  = 200 // entries that are listed
	maxRefusals = 20  // refusals that are listed
	maxQuery    = 1024
)

// A page answers one cell's questions about its own run and its own policy. It
// reads what the gate has in memory: it resolves nothing, and knows nothing of
// other runs.
type page struct {
	lease   *lease
	limiter *rate.Limiter
}

func (l *lease) page() sniproxy.Page {
	p := &page{lease: l, limiter: rate.NewLimiter(pageRate, pageBurst)}
	return sniproxy.Page{Name: pageName, Answer: p.answer}
}

// An overview is the answer to GET /.
type overview struct {
	Policy     string               `json:"policy"`
	Digest     string               `json:"digest"`
	Generation uint64               `json:"generation"`
	Gone       bool                 `json:"gone,omitempty"` // the allowlist no longer has the policy
	AnyHost    bool                 `json:"anyHost"`
	Allowed    []firewall.Allowance `json:"allowed"`
	More       int                  `json:"more,omitempty"` // entries beyond those
	Refusals   []refusalSeen        `json:"refusals"`       // of this run, the latest last
	Why        string               `json:"why"`
}

// A refusalSeen is one refusal of the run; of equal ones the latest.
type refusalSeen struct {
	Time   string          `json:"time"`
	Kind   account.Kind    `json:"kind"`
	Host   string          `json:"host"`
	Port   uint16          `json:"port,omitempty"`
	Reason firewall.Reason `json:"reason"`
	Detail string          `json:"detail,omitempty"`
}

// answer is the page; see sniproxy.Page.
func (p *page) answer(target, accept string) (status int, kind string, body []byte) {
	plain := func(status int, format string, args ...any) (int, string, []byte) {
		return status, "text/plain; charset=utf-8", fmt.Appendf(nil, format+"\n", args...)
	}
	if !p.limiter.Allow() {
		return plain(http.StatusTooManyRequests, "too many requests: at most %d a second", pageRate)
	}
	path, raw, _ := strings.Cut(target, "?")
	query, err := pageQuery(path, raw)
	if err != nil {
		return plain(http.StatusBadRequest, "%s", firewall.Escape(err.Error(), 200))
	}
	var answer interface{ text(*bytes.Buffer) }
	switch path {
	case "/":
		answer = p.overview()
	case "/why":
		answer, err = p.why(query.Get("host"), query.Get("port"))
	default:
		return plain(http.StatusNotFound, "there are / and /why?host=NAME&port=443")
	}
	if err != nil {
		return plain(http.StatusBadRequest, "%s", firewall.Escape(err.Error(), 200))
	}
	var b bytes.Buffer
	if query.Get("format") == "json" || query.Get("format") == "" && strings.Contains(strings.ToLower(accept), "application/json") {
		lines := json.NewEncoder(&b)
		lines.SetIndent("", "  ")
		if err := lines.Encode(answer); err != nil {
			return plain(http.StatusInternalServerError, "%v", err)
		}
		return http.StatusOK, "application/json", b.Bytes()
	}
	answer.text(&b)
	return http.StatusOK, "text/plain; charset=utf-8", b.Bytes()
}

// pageQuery reads a query: only what the path knows, and nothing twice.
func pageQuery(path, raw string) (url.Values, error) {
	if len(raw) > maxQuery {
		return nil, fmt.Errorf("the query is longer than %d bytes", maxQuery)
	}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("the query is malformed: %w", err)
	}
	for key, values := range q {
		known := key == "format" && (values[0] == "json" || values[0] == "text") || path == "/why" && (key == "host" || key == "port")
		if !known || len(values) != 1 {
			return nil, fmt.Errorf("parameter %s is unknown, malformed or given twice", key)
		}
	}
	return q, nil
}

func (p *page) overview() *overview {
	policy := p.lease.policy.Load()
	o := &overview{
		Policy: p.lease.Lease.Policy, Digest: policy.Digest(), Generation: p.lease.server.edition.Load().generation,
		Gone: policy == nil, AnyHost: policy.Any(), Allowed: policy.Allowed(),
		Refusals: p.refusals(""), Why: "http://" + firewall.PageHost + "/why?host=NAME&port=443",
	}
	if n := len(o.Allowed); n > maxAllowed {
		o.Allowed, o.More = o.Allowed[:maxAllowed], n-maxAllowed
	}
	if o.Allowed == nil {
		o.Allowed = []firewall.Allowance{}
	}
	return o
}

func (o *overview) text(b *bytes.Buffer) {
	fmt.Fprintf(b, "This sandbox reaches the network only through a gate, by the policy %q (%s).\n", o.Policy, o.Digest)
	switch {
	case o.Gone:
		b.WriteString("The operator's allowlist no longer has that policy: everything is denied.\n")
	case o.AnyHost:
		b.WriteString("It allows any public host, on ports 80 and 443, but for what the gate never allows.\n")
	}
	if len(o.Allowed) > 0 {
		b.WriteString("\nAllowed (a leading dot is every subdomain, too):\n")
	}
	for _, a := range o.Allowed {
		fmt.Fprintf(b, "  %s %s\n", a.Host, portText(a.Ports))
	}
	if o.More > 0 {
		fmt.Fprintf(b, "  and %d more\n", o.More)
	}
	b.WriteString("\nThe last refusals of this run:\n")
	refusalText(b, o.Refusals)
	fmt.Fprintf(b, "\nWhy a host is refused, and what to ask for: %s\n", o.Why)
}

func portText(ports []uint16) string {
	var s []string
	for _, p := range ports {
		s = append(s, strconv.Itoa(int(p)))
	}
	return strings.Join(s, ", ")
}

func refusalText(b *bytes.Buffer, list []refusalSeen) {
	if len(list) == 0 {
		b.WriteString("  none\n")
	}
	for _, r := range list {
		fmt.Fprintf(b, "  %s %s %s", r.Time, r.Kind, r.Host)
		if r.Port != 0 {
			fmt.Fprintf(b, ":%d", r.Port)
		}
		fmt.Fprintf(b, " %s", r.Reason)
		if r.Detail != "" {
			fmt.Fprintf(b, " (%s)", r.Detail)
		}
		b.WriteByte('\n')
	}
}

// refusals are the latest of this run, the last one last, or those of one host.
func (p *page) refusals(host string) []refusalSeen {
	type key struct {
		kind   account.Kind
		host   string
		port   uint16
		reason firewall.Reason
	}
	seen, list := make(map[key]bool), []refusalSeen{}
	for _, r := range p.lease.journal.Latest() {
		k := key{r.Kind, r.Host, r.Port, r.Reason}
		if r.Verdict != firewall.Deny || host != "" && r.Host != host || seen[k] {
			continue
		}
		seen[k] = true
		list = append(list, refusalSeen{r.Time.UTC().Format("15:04:05"), r.Kind, r.Host, r.Port, r.Reason, r.Detail})
		if len(list) == maxRefusals {
			break
		}
	}
	slices.Reverse(list)
	return list
}
