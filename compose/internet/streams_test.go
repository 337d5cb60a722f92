package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"sallyport/compose/internet/echo"
)

func TestGRPC(t *testing.T) {
	srv, client, _ := start(t, newHits(io.Discard))
	config := client.Transport.(*http.Transport).TLSClientConfig
	c, err := grpc.NewClient("passthrough:///grpc.docs.example:443", grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := []string{"one", "two"}
	if heard, err := echo.Talk(t.Context(), c, want); err != nil || !slices.Equal(heard, want) {
		t.Errorf("heard %q, %v", heard, err)
	}
}

func TestWebSocket(t *testing.T) {
	_, client, _ := start(t, newHits(io.Discard))
	c, _, err := websocket.Dial(t.Context(), "wss://ws.docs.example/", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, text := range []string{"one", "two"} {
		if err := c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(t.Context()); err != nil || string(got) != text {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
	}
}

func TestStreamsWaitForTheirClient(t *testing.T) {
	_, client, _ := start(t, newHits(io.Discard))
	resp, err := client.Get("https://docs.example/events?id=a")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); err != nil || line != "data: first\n" {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	goOn := func(id string) {
		resp, err := client.Post("https://docs.example/go?id="+id, "text/plain", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	goOn("a")
	if rest, err := io.ReadAll(r); err != nil || !strings.Contains(string(rest), "data: second") {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	goOn("b") // before anybody waits
	if _, got := get(t, client, "https://docs.example/poll?id=b"); got != "polled\n" {
		t.Errorf("the poll got %q", got)
	}
}

func TestOfferOfAHello(t *testing.T) {
	got := offer(&tls.ClientHelloInfo{CipherSuites: []uint16{0x3a3a, 0x1301}, SupportedProtos: []string{"h2", "http/1.1"},
		SupportedCurves: []tls.CurveID{tls.X25519MLKEM768}, Extensions: []uint16{0, 0xfe0d}})
	if want := "alpn=h2,http/1.1 grease post-quantum ech"; got != want {
		t.Errorf("a browser's hello: %q, want %q", got, want)
	}
	if got := offer(&tls.ClientHelloInfo{CipherSuites: []uint16{0x1301, 0x0a1a}}); got != "alpn=" {
		t.Errorf("a simple hello: %q", got)
	}
}
