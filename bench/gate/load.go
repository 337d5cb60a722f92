package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// clientHello is the record that Go's own client sends for a host.
func clientHello(host string) []byte {
	r := &recorder{}
	_ = tls.Client(r, &tls.Config{ServerName: host}).Handshake() // it gets no answer
	return r.sent.Bytes()
}

type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Read([]byte) (int, error)    { return 0, io.EOF }
func (r *recorder) Write(p []byte) (int, error) { return r.sent.Write(p) }
func (r *recorder) Close() error                { return nil }

// dial opens a tunnel and returns when the upstream has greeted.
func dial(p path, hello []byte) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: p.client.AsSlice()}}
	c, err := d.Dial("tcp", p.server.String())
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	var b [1]byte
	if _, err = c.Write(hello); err == nil {
		_, err = io.ReadFull(c, b[:])
	}
	if err == nil && b[0] != greeting {
		err = errors.New("not the upstream's greeting")
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// hangUp has the upstream close a tunnel. Otherwise it would be the servers that
// keep their ports to the upstream occupied for a minute, until none is free.
func hangUp(c net.Conn) error {
	defer c.Close()
	if _, err := c.Write(binary.BigEndian.AppendUint64([]byte{opEnd}, 0)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return fmt.Errorf("waiting for the end: %w", err)
	}
	return nil
}

func transfer(c net.Conn, op byte, n int64) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	command := binary.BigEndian.AppendUint64([]byte{op}, uint64(n))
	if _, err := c.Write(command); err != nil {
		return err
	}
	if op == opDown {
		return receive(c, n)
	}
	if err := send(c, n); err != nil {
		return err
	}
	return receive(c, 1)
}

// churn opens and closes tunnels with 32 clients for a time, and returns the
// server's processor time for each, in microseconds.
func (b *bench) churn(s *server, lasting time.Duration) (float64, error) {
	const clients = 32
	before, err := cpuTime(s.pid())
	if err != nil {
		return 0, err
	}
	counts, errs := make([]int, clients), make([]error, clients)
	end := time.Now().Add(lasting)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for time.Now().Before(end) && errs[i] == nil {
				var c net.Conn
				if c, errs[i] = dial(s.paths[(i+counts[i])%len(s.paths)], b.hello); errs[i] == nil {
					counts[i]++
					errs[i] = hangUp(c)
				}
			}
		})
	}
	wg.Wait()
	after, err := cpuTime(s.pid())
	n := 0
	for _, c := range counts {
		n += c
	}
	return float64((after - before).Microseconds()) / float64(max(n, 1)), first(append(errs, err))
}

// bulk moves size bytes in all over 16 tunnels and returns the server's
// processor time, in seconds for each GiB.
func (b *bench) bulk(s *server, op byte, size int64) (float64, error) {
	const streams = 16
	conns, err := b.open(s, streams)
	defer closeAll(conns)
	if err != nil {
		return 0, err
	}
	before, err := cpuTime(s.pid())
	if err != nil {
		return 0, err
	}
	errs := make([]error, streams)
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() { errs[i] = transfer(c, op, size/streams) })
	}
	wg.Wait()
	after, err := cpuTime(s.pid())
	return (after - before).Seconds() / (float64(size) / (1 << 30)), first(append(errs, err))
}

// open makes n tunnels that stay, spread over the paths.
func (b *bench) open(s *server, n int) ([]net.Conn, error) {
	const atOnce = 32
	conns, errs := make([]net.Conn, n), make([]error, atOnce)
	var wg sync.WaitGroup
	for w := range atOnce {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += atOnce {
				conns[i], errs[w] = dial(s.paths[i%len(s.paths)], b.hello)
			}
		})
	}
	wg.Wait()
	return conns, first(errs)
}

// first returns one error of many that are mostly the same.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
}

// idle opens n tunnels, moves a little through each, lets them rest and returns
// what each holds of the server.
func (b *bench) idle(s *server, n int) (held, error) {
	before, err := holds(s.pid())
	if err != nil {
		return held{}, err
	}
	conns, err := b.open(s, n)
	defer closeAll(conns)
	if err != nil {
		return held{}, err
	}
	for _, c := range conns {
		if err := errors.Join(transfer(c, opUp, 16<<10), transfer(c, opDown, 16<<10)); err != nil {
			return held{}, err
		}
	}
	time.Sleep(b.rest)
	after, err := holds(s.pid())
	return held{
		rss:   (after.rss - before.rss) / float64(n),
		fds:   (after.fds - before.fds) / float64(n),
		pipes: after.pipes - before.pipes,
	}, err
}

// latency opens tunnels one after the other, in turns with connections straight
// to the upstream, and returns by how much the median and the 99th percentile
// differ, in microseconds.
func (b *bench) latency(s *server, n int) (p50, p99 float64, err error) {
	direct := path{upstreamAddr, upstreamAddr.Addr()}
	var took [2][]float64
	for i := range n {
		for side, p := range []path{direct, s.paths[i%len(s.paths)]} {
			start := time.Now()
			c, err := dial(p, b.hello)
			if err != nil {
				return 0, 0, err
			}
			took[side] = append(took[side], float64(time.Since(start).Nanoseconds())/1e3)
			if err := hangUp(c); err != nil {
				return 0, 0, err
			}
			time.Sleep(200 * time.Microsecond)
		}
	}
	slices.Sort(took[0])
	slices.Sort(took[1])
	at := func(q float64) float64 { i := int(q * float64(n-1)); return took[1][i] - took[0][i] }
	return at(0.5), at(0.99), nil
}

// pace opens rate tunnels a second for a time, whether or not earlier ones are
// done, and closes each at once. It returns the 99th percentile of the time
// that one took, in milliseconds.
func (b *bench) pace(ctx context.Context, s *server, rate int, lasting time.Duration) (float64, error) {
	n := int(lasting.Seconds() * float64(rate))
	took, errs := make([]float64, n), make([]error, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		wg.Go(func() {
			began := time.Now()
			c, err := dial(s.paths[i%len(s.paths)], b.hello)
			took[i] = float64(time.Since(began).Microseconds()) / 1e3
			if err == nil {
				err = hangUp(c)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > 0 {
		return 0, fmt.Errorf("at %d connections a second %d of %d failed, one with: %w", rate, len(errs), n, errs[0])
	}
	slices.Sort(took)
	return took[n*99/100], ctx.Err()
}
