package githubauth_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"

	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		os.Unsetenv(name) // the servers are in this process
	}
	os.Exit(m.Run())
}

// A bench is an App and the GitHub that it talks to, over loopback.
type bench struct {
	github *githubtest.Server
	app    *githubauth.App
	logs   *syncBuffer
	dial   rest.Dial
	dialed *syncBuffer // the addresses, one on a line
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newBench serves on ln, on loopback where nil; set prepares what is not usual.
func newBench(t testing.TB, ln *pipes, set ...func(*githubtest.Server, *githubauth.Config)) *bench {
	t.Helper()
	b := &bench{github: githubtest.New(t), logs: new(syncBuffer), dialed: new(syncBuffer)}
	key, err := githubauth.LoadKey(githubtest.KeyFile(t))
	if err != nil {
		t.Fatal(err)
	}
	config := githubauth.Config{AppID: githubtest.AppID, Signer: key, Roots: githubtest.Keys().Roots, Log: slog.New(slog.NewTextHandler(b.logs, nil))}
	if ln != nil {
		githubtest.Serve(t, b.github, ln)
		config.Dial = ln.dial
	} else {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		githubtest.Serve(t, b.github, l)
		config.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			io.WriteString(b.dialed, addr+"\n")
			return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
		}
	}
	b.dial = config.Dial
	for _, f := range set {
		f(b.github, &config)
	}
	if b.app, err = githubauth.NewApp(config); err != nil {
		t.Fatal(err)
	}
	return b
}

// pipes are connections in memory: unlike the network's they let the clock of a
// synctest bubble go on.
type pipes struct {
	conns chan net.Conn
	ctx   context.Context
	close context.CancelFunc
}

func newPipes() *pipes {
	ctx, cancel := context.WithCancel(context.Background())
	return &pipes{make(chan net.Conn), ctx, cancel}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}
