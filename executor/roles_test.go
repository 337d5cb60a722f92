package executor_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"sallyport/entrypoint/github"
	"sallyport/entrypoint/pid1"
	"sallyport/entrypoint/wire"
)

// play makes this process what a test needs inside or in place of a sandbox.
func play(role string) error {
	switch role {
	case "entrypoint":
		return pid1.Main(context.Background(), os.Stdin, os.Stdout)
	case "dead": // a sandbox that ends before it is ready
		return nil
	case "forger":
		return forge()
	case "babbler": // a sandbox that does not keep to the protocol
		out := wire.NewWriter(os.Stdout)
		if err := out.WriteJSON(wire.FrameReady, wire.Ready{Version: wire.ProtocolVersion}); err != nil {
			return err
		}
		if _, err := nextJob(); err != nil {
			return err
		}
		_, err := os.Stdout.WriteString("{\"type\":\"result\",\"success\":true}\n")
		time.Sleep(time.Minute)
		return err
	case "resolver":
		return lookUp()
	case "checkout":
		return github.Checkout(context.Background(), os.Stdin, os.Stdout)
	}
	return fmt.Errorf("no role %q", role)
}

func nextJob() (wire.Job, error) {
	var job wire.Job
	f, err := wire.NewReader(os.Stdin).Next()
	if err == nil {
		err = json.Unmarshal(f.Payload, &job)
	}
	return job, err
}

// forge is a PID 1 that was subverted: it sends an archive that leads out of
// the workspace and says that all went well.
func forge() error {
	out := wire.NewWriter(os.Stdout)
	if err := out.WriteJSON(wire.FrameReady, wire.Ready{Version: wire.ProtocolVersion}); err != nil {
		return err
	}
	job, err := nextJob()
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "fine.txt", Size: 4, Mode: 0o600})
	w.Write([]byte("fine"))
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc"})
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "link/passwd", Size: 4, Mode: 0o600})
	w.Write([]byte("evil"))
	w.Close()
	out.WriteJSON(wire.FrameStarted, wire.Started{JobID: job.ID, PID: 2})
	out.Write(wire.FrameArtifact, archive.Bytes())
	out.Write(wire.FrameArtifact, nil)
	return out.WriteJSON(wire.FrameExit, wire.Exit{JobID: job.ID})
}

// lookUp asks a DNS server for names, from an address of the cell, and prints
// what it says.
func lookUp() error {
	server, own, names := os.Args[1], net.ParseIP(os.Args[2]), os.Args[3:]
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: own}}
		return d.DialContext(ctx, "udp", server)
	}}
	for _, name := range names {
		addrs, err := r.LookupHost(context.Background(), name+".")
		fmt.Println(name, addrs, err != nil)
	}
	return nil
}
