package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// tries has the function of each kind. The context ends at the probe's deadline. It is no
// variable, which a program that knows the kinds alone would link with all it leads to.
func tries() map[Kind]func(context.Context, Probe) finding {
	return map[Kind]func(context.Context, Probe) finding{
		TCP: tryTCP, UDP: tryUDP, TLS: tryTLS, HTTP: tryHTTP, DNS: tryDNS, DNSTCP: tryDNS, ICMP: tryICMP,
		TCPDontRoute: tryTCPDontRoute, UDPDontRoute: tryUDPDontRoute,
		UDPBroadcast: tryBroadcast, UDPMulticast: tryMulticast, IPv6: tryIPv6,
		RawSocket: kernel(rawSocket), PacketSocket: kernel(packetSocket), SocketFamilies: kernelSays(socketFamilies),
		SocketPairs: kernelSays(socketPairs), SocketTypes: kernelSays(socketTypes), NetAdmin: kernel(netAdmin),
		NFTables: kernel(nftables), Mount: kernel(mount), Unshare: kernel(unshare), SetUID: kernel(setUID),
		Mknod: kernel(mknod), Chroot: kernel(chroot), PtracePID1: kernel(ptracePID1),
		LimitsPID1: kernel(limitsPID1), CoreLimit: kernelSays(coreLimit), Keyctl: kernel(keyctl),
		BPF: kernel(bpf), Perf: kernel(perf), Userfaultfd: kernel(userfaultfd), IOUring: kernel(ioUring),
		OpenByHandle: kernel(openByHandle),
		Facts:        func(context.Context, Probe) finding { return finding{self: readSelf()} },
	}
}

// Run reads a Request from stdin, tries all of it, some at a time, and writes each
// Result as a line of JSON, in the order in which they end.
func Run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	request, err := parse(json.NewDecoder(io.LimitReader(stdin, MaxRequest)))
	if err != nil {
		return err
	}
	lines := json.NewEncoder(stdout)
	return request.try(ctx, func(r Result) error { return lines.Encode(r) })
}

// try makes all probes, some at a time, and passes on their results, one at a time.
func (request Request) try(ctx context.Context, write func(Result) error) error {
	var (
		all  sync.WaitGroup
		turn = make(chan struct{}, concurrency)
		mu   sync.Mutex // guards bad, and is held while a result is written
		bad  error
	)
	for _, p := range request.Probes {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			result := Try(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			if err := write(result); err != nil && bad == nil {
				bad = fmt.Errorf("write a result: %w", err)
			}
		})
	}
	all.Wait()
	return bad
}

func parse(d *json.Decoder) (Request, error) {
	d.DisallowUnknownFields()
	var request Request
	if err := d.Decode(&request); err != nil {
		return Request{}, fmt.Errorf("decode the request: %w", err)
	}
	if n := len(request.Probes); n == 0 || n > MaxProbes {
		return Request{}, fmt.Errorf("%d probes, not 1 to %d", n, MaxProbes)
	}
	ids, known := make(map[string]bool), tries()
	for _, p := range request.Probes {
		if known[p.Kind] == nil {
			return Request{}, fmt.Errorf("probe %q has the unknown kind %q", p.ID, p.Kind)
		}
		if p.ID == "" || ids[p.ID] {
			return Request{}, fmt.Errorf("probe id %q is empty or there twice", p.ID)
		}
		ids[p.ID] = true
	}
	return request, nil
}

// Try does one probe.
func Try(ctx context.Context, p Probe) Result {
	timeout := defaultTimeout
	if p.TimeoutMS > 0 {
		timeout = min(time.Duration(p.TimeoutMS)*time.Millisecond, maxTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := time.Now()
	o := finding{detail: fmt.Sprintf("unknown kind %q", p.Kind)}
	if try := tries()[p.Kind]; try != nil {
		o = try(ctx, p)
	}
	return Result{
		ID: p.ID, Reached: o.reached, Detail: clip(o.detail), Self: o.self,
		Millis: time.Since(begin).Milliseconds(),
	}
}

func clip(s string) string {
	s = strings.ReplaceAll(s, "\n", "; ")
	if len(s) > MaxDetail {
		return s[:MaxDetail]
	}
	return s
}
