package policy

import (
	"encoding/json"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"sallyport/executor/api"
	"sallyport/firewall"
)

var resolveMembers = []string{"tenant", "document", "security", "task", "taskType"}

// DecodeResolve reads the body of a question for an effective policy, strictly.
func DecodeResolve(body []byte) (r api.PolicyRequest, err error) {
	if _, err = object(body, "body", resolveMembers...); err == nil {
		err = fill(body, &r)
	}
	return r, err
}

// DecodeRoute reads the body of a question for a route, strictly.
func DecodeRoute(body []byte) (r api.RouteRequest, err error) {
	known := append([]string{"destination", "addresses", "tools", "isolated"}, resolveMembers...)
	if _, err = object(body, "body", known...); err == nil {
		err = fill(body, &r)
	}
	return r, err
}

// fill decodes an object whose names have been looked at.
func fill(body []byte, to any) error {
	if len(strings.TrimSpace(string(body))) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, to); err != nil {
		return wrong("body", "%v", err)
	}
	return nil
}

// NewQuery is the query of a request for a tenant. The type of its task is that of the
// task's definition, unless it is said.
func NewQuery(tenant string, r api.PolicyRequest) (Query, error) {
	q := Query{Tenant: tenant}
	var err error
	if q.Document, err = ReadDocument(r.Document, r.Security); err != nil {
		return Query{}, err
	}
	if q.Task, err = ReadTask(r.Task); err != nil {
		return Query{}, err
	}
	if q.TaskType, err = TaskTypeOf(r.Task); err != nil {
		return Query{}, err
	}
	if r.TaskType != "" && q.TaskType != "" && q.TaskType != r.TaskType {
		return Query{}, wrong("taskType", "it is %s, and the task is %s; leave it out", quote(r.TaskType), quote(q.TaskType))
	}
	if r.TaskType != "" {
		q.TaskType = r.TaskType
	}
	return q, nil
}

const maxAddresses = 64

// NewCall is the call of a request for a route.
func NewCall(r api.RouteRequest) (Call, error) {
	c := Call{Tools: r.Tools, Isolated: r.Isolated}
	if len(r.Addresses) > maxAddresses {
		return c, wrong("addresses", "there are %d; a name that leads to more than %d is refused", len(r.Addresses), maxAddresses)
	}
	for _, s := range r.Addresses {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return c, wrong("addresses", "%s is not an IP address", quote(s))
		}
		c.Addrs = append(c.Addrs, addr)
	}
	if r.Destination == "" {
		return c, nil
	}
	var err error
	c.Host, c.Port, err = split(r.Destination)
	return c, err
}

// split reads HOST[:PORT] or a URL.
func split(s string) (host string, port uint16, err error) {
	port = firewall.DefaultPort
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "wss" && u.Scheme != "ws" {
			return "", 0, wrong("destination", "%s is not the URL of a host: write HOST[:PORT], or one of http or https", quote(s))
		}
		if u.Scheme == "http" || u.Scheme == "ws" {
			port = 80
		}
		if u.Port() == "" {
			return u.Hostname(), port, nil
		}
		s = u.Host
	}
	if _, err := netip.ParseAddr(s); err == nil || !strings.Contains(s, ":") {
		return s, port, nil
	}
	host, p, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(p, 10, 16)
	if err != nil || perr != nil || n == 0 || host == "" {
		return "", 0, wrong("destination", "%s is not HOST[:PORT]", quote(s))
	}
	return host, uint16(n), nil
}
