// Package page answers a cell's questions about its own run: what its policy allows, what
// was refused, and why a host would be. It resolves nothing, and knows nothing of other
// runs.
package page

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
)

// Name is firewall.PageHost as the DNS gate and the forwarder compare it.
var Name = func() firewall.Name {
	n, err := firewall.ParseName(firewall.PageHost)
	if err != nil {
		panic(err)
	}
	return n
}()

// The bounds of the page. What a program needs is a few requests in a run.
const (
	requestRate  = 20 // requests a second
	RequestBurst = 40
	maxAllowed   = 200 // entries that are listed
	maxRefusals  = 20  // refusals that are listed
	maxQuery     = 1024
)

// A Page answers one cell. Its fields are required.
type Page struct {
	// PolicyName is that of the cell's policy, and Policy the policy of now, nil if the
	// allowlist no longer has it.
	PolicyName string
	Policy     func() *firewall.Policy
	// Generation is that of the allowlist in force.
	Generation func() uint64
	// Latest returns the latest decisions of the run, the newest first.
	Latest func() []account.Record

	limiter *rate.Limiter
}

// New makes the page of a cell.
func New(p Page) *Page {
	p.limiter = rate.NewLimiter(requestRate, RequestBurst)
	return &p
}

// An Overview is the answer to GET /.
type Overview struct {
	Policy     string               `json:"policy"`
	Digest     string               `json:"digest"`
	Generation uint64               `json:"generation"`
	Gone       bool                 `json:"gone,omitempty"` // the allowlist no longer has the policy
	AnyHost    bool                 `json:"anyHost"`
	Allowed    []firewall.Allowance `json:"allowed"`
	More       int                  `json:"more,omitempty"` // entries beyond those
	Refusals   []refusal            `json:"refusals"`       // of this run, the latest last
	Why        string               `json:"why"`
}

// A refusal is one refusal of the run; of equal ones the latest.
type refusal struct {
	Time   string          `json:"time"`
	Kind   account.Kind    `json:"kind"`
	Host   string          `json:"host"`
	Port   uint16          `json:"port,omitempty"`
	Reason firewall.Reason `json:"reason"`
	Detail string          `json:"detail,omitempty"`
}

// Answer is the page; see forward.Page.
func (p *Page) Answer(target, accept string) (status int, kind string, body []byte) {
	plain := func(status int, format string, args ...any) (int, string, []byte) {
		return status, "text/plain; charset=utf-8", fmt.Appendf(nil, format+"\n", args...)
	}
	if !p.limiter.Allow() {
		return plain(http.StatusTooManyRequests, "too many requests: at most %d a second", requestRate)
	}
	path, raw, _ := strings.Cut(target, "?")
	query, err := readQuery(path, raw)
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

// readQuery reads a query: only what the path knows, and nothing twice.
func readQuery(path, raw string) (url.Values, error) {
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

func (p *Page) overview() *Overview {
	policy := p.Policy()
	o := &Overview{
		Policy: p.PolicyName, Digest: policy.Digest(), Generation: p.Generation(),
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

func (o *Overview) text(b *bytes.Buffer) {
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

func refusalText(b *bytes.Buffer, list []refusal) {
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
func (p *Page) refusals(host string) []refusal {
	type key struct {
		kind   account.Kind
		host   string
		port   uint16
		reason firewall.Reason
	}
	seen, list := make(map[key]bool), []refusal{}
	for _, r := range p.Latest() {
		k := key{r.Kind, r.Host, r.Port, r.Reason}
		if r.Verdict != firewall.Deny || host != "" && r.Host != host || seen[k] {
			continue
		}
		seen[k] = true
		list = append(list, refusal{r.Time.UTC().Format("15:04:05"), r.Kind, r.Host, r.Port, r.Reason, r.Detail})
		if len(list) == maxRefusals {
			break
		}
	}
	slices.Reverse(list)
	return list
}
