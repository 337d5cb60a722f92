// Package webhook posts signed messages to one address that an operator names: by the
// Standard Webhooks specification, to no private address that was not admitted, and never
// any further than there. It dials the very address that it judged, uses no proxy and
// follows no redirect.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sallyport/firewall"
)

// Config is what an Endpoint is made of.
type Config struct {
	URL string // https, or http to an address that Private admits
	// Secret is the key that signs, in base64, with whsec_ before it or not: 24 to 64 bytes.
	Secret string
	// Private are the ranges of private addresses that URL may lead to; none by default.
	Private []netip.Prefix
	Roots   *x509.CertPool // nil for the system's
}

// An Endpoint is where messages are posted. It is safe for concurrent use.
type Endpoint struct {
	url     string
	signer  *standardwebhooks.Webhook
	private []netip.Prefix
	plain   bool // http
	client  *http.Client
}

// timeout bounds one delivery.
const timeout = 15 * time.Second

// The bounds of a secret, as the specification has them, in bytes.
const minSecret, maxSecret = 24, 64

// New checks a configuration. Nothing is looked up before the first Post.
func New(c Config) (*Endpoint, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the webhook's address must be https://HOST/PATH, without a password")
	}
	if u.Scheme == "http" && len(c.Private) == 0 {
		return nil, errors.New("the webhook's address is one of http: that is for private addresses alone, which have to be admitted")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(c.Secret, "whsec_"))
	if err != nil || len(key) < minSecret || len(key) > maxSecret {
		return nil, fmt.Errorf("the webhook's secret must be %d to %d bytes in base64, such as what \"openssl rand -base64 32\" prints", minSecret, maxSecret)
	}
	for _, p := range c.Private {
		if p != p.Masked() {
			return nil, fmt.Errorf("the webhook's private range %s has bits beyond its length: write %s", p, p.Masked())
		}
		if ok, why := firewall.JudgeRange(p); !ok {
			return nil, fmt.Errorf("the webhook's private range %s %s", p, why)
		}
	}
	e := &Endpoint{url: c.URL, private: c.Private, plain: u.Scheme == "http"}
	if e.signer, err = standardwebhooks.NewWebhookRaw(key); err != nil {
		return nil, err
	}
	e.client = &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{DialContext: e.dial, TLSClientConfig: &tls.Config{RootCAs: c.Roots}, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e, nil
}

// Post sends a message once. Its id is the same each time that it is sent again. An answer
// that is no success is an error, and so is a redirect. Errors do not name the address,
// which may be a secret in part.
func (e *Endpoint) Post(ctx context.Context, id string, at time.Time, body []byte) error {
	signature, err := e.signer.Sign(id, at, body)
	if err != nil {
		return fmt.Errorf("sign a message: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("the webhook's address makes no request")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sallyport")
	req.Header.Set(standardwebhooks.HeaderWebhookID, id)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	resp, err := e.client.Do(req)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if err != nil {
		return fmt.Errorf("post a message: %w", err)
	}
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("post a message: it is answered with %s", resp.Status)
	}
	return nil
}

// dial connects to an address of a host, all of which it has judged.
func (e *Endpoint) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
		if err := e.judge(addrs[i]); err != nil {
			return nil, err
		}
	}
	err = errors.New("its name leads to no address")
	for _, a := range addrs {
		var conn net.Conn
		if conn, err = new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(a.String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// judge says why an address is not dialled, or nil.
func (e *Endpoint) judge(a netip.Addr) error {
	ok, why := firewall.JudgeAddr(a)
	if ok && e.plain {
		return fmt.Errorf("%s is public, and the address one of http", a)
	}
	if ok {
		return nil
	}
	// What lies in an admitted range is admitted, but for the rows of the floor in it.
	if single, err := a.Prefix(a.BitLen()); err == nil && slices.ContainsFunc(e.private, func(p netip.Prefix) bool { return p.Contains(a) }) {
		if ok, _ := firewall.JudgeRange(single); ok {
			return nil
		}
	}
	return errors.New(why)
}
