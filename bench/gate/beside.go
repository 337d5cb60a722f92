package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"sync/atomic"
	"time"

	"sallyport/bench/report"
)

// probeArg has this program only open tunnels, one after the other: its arguments
// are the server's address, the client's and for how long.
const probeArg = "probe"

// beside opens tunnels of one cell, one after the other, while 16 of another one
// download as fast as they can. It returns the median and the 99th percentile of
// the time that one took, in milliseconds, and the rate of the downloads, in GiB/s.
// The peers have no cells.
func (b *bench) beside(s *server, lasting time.Duration) ([]float64, error) {
	const streams = 16
	bulk := make([]net.Conn, streams)
	defer func() { closeAll(bulk) }()
	var moved atomic.Int64
	for i := range bulk {
		var err error
		if bulk[i], err = dial(s.paths[0], b.hello); err != nil {
			return nil, err
		}
		go download(bulk[i], &moved)
	}
	time.Sleep(lasting / 4)
	p := s.paths[len(s.paths)-1]
	// The load's own threads are busy with the downloads. A connection that had to wait
	// for one of them would show how long they take, however quick the server is.
	cmd := exec.Command("nice", "-n", "-20", b.self, probeArg, p.server.String(), p.client.String(), lasting.String())
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	before, began := moved.Load(), time.Now()
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("new connections: %w\n%s", err, complaint.Bytes())
	}
	rate := float64(moved.Load()-before) / (1 << 30) / time.Since(began).Seconds()
	var p50, p99 float64
	if _, err := fmt.Fscan(&out, &p50, &p99); err != nil {
		return nil, fmt.Errorf("new connections: %w", err)
	}
	return []float64{p50, p99, rate}, nil
}

// download takes what the upstream sends until the tunnel is closed.
func download(c net.Conn, moved *atomic.Int64) {
	_ = c.SetDeadline(time.Time{})
	if _, err := c.Write(binary.BigEndian.AppendUint64([]byte{opDown}, 1<<40)); err != nil {
		return
	}
	for buf := make([]byte, chunk); ; {
		n, err := c.Read(buf)
		if moved.Add(int64(n)); err != nil {
			return
		}
	}
}

// probe opens tunnels to the calm upstream, one after the other, and prints the
// median and the 99th percentile of the time that one took, in milliseconds.
func probe(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 3 {
		return fmt.Errorf("%d arguments, want three", len(args))
	}
	server, err1 := netip.ParseAddrPort(args[0])
	client, err2 := netip.ParseAddr(args[1])
	lasting, err3 := time.ParseDuration(args[2])
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	hello := clientHello(calmName)
	var took report.Samples
	for end := time.Now().Add(lasting); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		began := time.Now()
		c, err := dial(path{server, client}, hello)
		if err != nil {
			return err
		}
		took = append(took, float64(time.Since(began).Microseconds())/1e3)
		if err := hangUp(c); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(stdout, took.Quantile(0.5), took.Quantile(0.99))
	return err
}
