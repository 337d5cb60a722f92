// Command tcpproxy is inetaf/tcpproxy as a peer of the gate's tunnel: it leads the
// hosts below a suffix to an upstream, and knows no others. It is a module of its
// own so that what is only measured is no dependency of the product.
//
//	tcpproxy LISTEN SUFFIX=UPSTREAM...
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/inetaf/tcpproxy"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tcpproxy:", err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%d arguments, want LISTEN and one or more SUFFIX=UPSTREAM", len(args))
	}
	var p tcpproxy.Proxy
	for _, route := range args[1:] {
		suffix, upstream, ok := strings.Cut(route, "=")
		if !ok {
			return fmt.Errorf("%q is not SUFFIX=UPSTREAM", route)
		}
		below := func(_ context.Context, host string) bool { return strings.HasSuffix(host, suffix) }
		p.AddSNIMatchRoute(args[0], below, tcpproxy.To(upstream))
	}
	return p.Run()
}
