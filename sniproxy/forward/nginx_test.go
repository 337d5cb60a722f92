package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sallyport/sniproxy/testnet"
)

// nginxConfig has nginx log each request that it takes from a connection: as it
// understood it, with the body after its framing was taken off, and how many
// bytes of the connection it took for it. The body is read because the request is
// passed on, to a server of its own that answers everything alike.
const nginxConfig = `
daemon off;
master_process off;
pid %[1]s/pid;
events { worker_connections 256; }
http {
	log_format all '"$status" "$request_method" "$http_host" "$host" "$request_uri" "$request_length" "$request_body"';
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	client_max_body_size 0;
	client_body_buffer_size 1m;
	client_body_in_single_buffer on;
	large_client_header_buffers 8 128k;
	lingering_close off;
	keepalive_timeout 30s;
	server {
		listen %[2]s;
		access_log %[1]s/requests.log all;
		location / {
			proxy_pass http://unix:%[1]s/answer.sock:/;
			proxy_method GET;
			proxy_ignore_client_abort on;
			proxy_pass_request_headers off;
			proxy_pass_request_body off;
			proxy_set_header Content-Length "";
		}
	}
	server {
		listen unix:%[1]s/answer.sock;
		access_log off;
		location / { return 200 "answered"; }
	}
	server {
		listen unix:%[1]s/status.sock;
		access_log off;
		location / { stub_status; }
	}
}
`

// An nginx is a real one, as the second opinion on where a request begins and
// ends, and for whom it is.
type nginx struct {
	addr   string
	log    *os.File
	status *http.Client
}

// startNginx starts one; scripts/setup installs it.
func startNginx(tb testing.TB) *nginx {
	tb.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx" // which is not on the path of Debian's users
	}
	dir := tb.TempDir()
	// On an address of this process's own, nobody else takes the port meanwhile.
	id := os.Getpid()
	ln, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 128+id>>16&0x3f, id>>8&0xff, id&0xff))
	if err != nil {
		tb.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	config, log := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "requests.log")
	if err := errors.Join(os.WriteFile(config, fmt.Appendf(nil, nginxConfig, dir, addr), 0o600), os.WriteFile(log, nil, 0o600)); err != nil {
		tb.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "-p", dir, "-c", config, "-e", "stderr")
	cmd.Stdout, cmd.Stderr = &said, &said
	startBound(tb, cmd, func() string { return said.String() })
	n := &nginx{addr: addr, status: &http.Client{Timeout: testnet.Patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "status.sock"))
		},
	}}}
	if n.log, err = os.Open(log); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.log.Close() })
	testnet.Eventually(tb, "nginx to answer", func() bool { return n.connections() == 1 })
	return n
}

// startBound starts a program that ends with the test, or with this process,
// should it be killed as workers of a fuzz target are.
func startBound(tb testing.TB, cmd *exec.Cmd, said func() string) {
	tb.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the signal comes when the thread that started it ends
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed below
		}
	}()
	if err := <-started; err != nil {
		tb.Fatalf("%v: scripts/setup webserver installs it", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if tb.Failed() {
			tb.Logf("%s said: %.2000s", cmd.Path, said())
		}
	})
}

// connections is how many nginx has now, with the one of this question; 0 where
// it does not say.
func (n *nginx) connections() (count int) {
	resp, err := n.status.Get("http://status/")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = fmt.Fscanf(resp.Body, "Active connections: %d", &count)
	_, _ = io.Copy(io.Discard, resp.Body)
	return count
}

// A taken is a request as nginx took it from a connection.
type taken struct {
	status                  int
	method, host, uri, body string
	lower                   string // the host as nginx chooses by it
	length                  int64
}

// requests waits until every connection is closed, when all their requests are in
// the log, and returns those since the last call.
func (n *nginx) requests(tb testing.TB) (list []taken) {
	tb.Helper()
	testnet.Eventually(tb, "nginx's connections to end", func() bool { return n.connections() == 1 })
	text, err := io.ReadAll(n.log)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var fields [7]string
		rest := strings.TrimSuffix(line, "\n")
		for i := range fields {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				tb.Fatalf("nginx logged %q", line)
			}
			fields[i], _ = strconv.Unquote(quoted)
			rest = strings.TrimPrefix(rest[len(quoted):], " ")
		}
		status, err1 := strconv.Atoi(fields[0])
		length, err2 := strconv.ParseInt(fields[5], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			tb.Fatalf("nginx logged %q: %v", line, err)
		}
		list = append(list, taken{status, fields[1], fields[2], fields[4], strings.TrimSuffix(fields[6], "-"), fields[3], length})
	}
	return list
}
