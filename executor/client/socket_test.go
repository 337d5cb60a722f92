package client_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sallyport/executor/client"
)

const waiterVariable = "SALLYPORT_TEST_SOCKET"

// TestMain is the program of another user, too, who waits for a token on a socket.
func TestMain(m *testing.M) {
	path := os.Getenv(waiterVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_ = os.Chmod(path, 0o666)
	fmt.Println("listening")
	conn, err := ln.Accept()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	got := make([]byte, 4096)
	n, _ := conn.Read(got)
	fmt.Printf("got %q\n", got[:n])
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"ok","version":%q}`, r.Header.Get("Authorization"))
	})}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	c := &client.Client{Addr: "unix://" + path, Token: token}
	if h, err := c.Health(t.Context()); err != nil || h.Version != "Bearer "+token {
		t.Errorf("%+v, %v", h, err)
	}
}

// Whoever else listens in the executor's place is told nothing; a listener of the same
// user reads the request.
func TestSocketOfAnotherUser(t *testing.T) {
	for _, uid := range []int{os.Geteuid(), 4711} {
		if uid != os.Geteuid() && os.Geteuid() != 0 {
			continue // only root can be somebody else here
		}
		t.Run(fmt.Sprint("user ", uid), func(t *testing.T) {
			dir, err := os.MkdirTemp("", "sallyport-socket-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			path, program := filepath.Join(dir, "api.sock"), filepath.Join(dir, "waiter")
			text, err := os.ReadFile(os.Args[0]) // where another user may start it
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(program, text, 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), program)
			cmd.Env = []string{waiterVariable + "=" + path}
			if os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(out)
			if line, err := said.ReadString('\n'); line != "listening\n" {
				t.Fatalf("%q, %v", line, err)
			}
			own := uid == os.Geteuid()
			c := &client.Client{Addr: "unix://" + path, Token: token}
			_, err = c.List(t.Context(), client.Query{}) // nobody answers
			if told := err != nil && strings.Contains(err.Error(), "the token is not for them"); told == own {
				t.Errorf("%v", err)
			}
			got, _ := said.ReadString('\n')
			if strings.Contains(got, token) != own || !strings.HasPrefix(got, "got ") {
				t.Errorf("the listener has %q", got)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
