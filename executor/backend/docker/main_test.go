package docker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/dockertest"
)

func TestMain(m *testing.M) { dockertest.Main(m) }

// start starts a sandbox and opens its wire; it is removed when the test ends.
func start(t *testing.T, s *dockertest.Stack, spec backend.Spec) (*backend.Sandbox, *wire.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sandbox, err := s.Backend().Start(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sandbox.Remove(context.Background()); err != nil {
			t.Error("remove:", err)
		}
	})
	session, err := wire.Open(ctx, sandbox.Stdin, sandbox.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return sandbox, session
}

// run runs the tests' program in a sandbox and returns what it printed.
func run(t *testing.T, session *wire.Session, args ...string) (string, wire.Exit) {
	t.Helper()
	return runEnv(t, session, nil, args...)
}

func runEnv(t *testing.T, session *wire.Session, env []string, args ...string) (string, wire.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var out strings.Builder
	exit, err := session.Run(ctx, wire.Job{
		ID: "job", Argv: append([]string{"/tool"}, args...), Env: env, Dir: backend.WorkspaceDir,
	}, nil, wire.Handlers{
		Stdout: func(p []byte) { out.Write(p) },
		Stderr: func(p []byte) { out.Write(p) },
	})
	if err != nil {
		t.Fatalf("run %v: %v (so far: %q)", args, err, out.String())
	}
	return out.String(), exit
}

// acquire takes a cell for the length of a test.
func acquire(t *testing.T, cells backend.Cells) backend.Cell {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cell, err := cells.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return cell
}

// eventually waits for a condition that something else brings about.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after 30 s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// serve has a sandbox answer on the gate's ports and port 9 until it ends.
func serve(t *testing.T, session *wire.Session) {
	t.Helper()
	serving := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		// The error is that the session was closed at the end of the test.
		session.Run(context.Background(), wire.Job{ID: "serve", Argv: []string{"/tool", "serve"}, Dir: backend.WorkspaceDir},
			nil, wire.Handlers{Stdout: func([]byte) { close(serving) }})
	})
	t.Cleanup(func() {
		session.Close()
		ended.Wait()
	})
	select {
	case <-serving:
	case <-time.After(30 * time.Second):
		t.Fatal("the sandbox does not serve")
	}
}
