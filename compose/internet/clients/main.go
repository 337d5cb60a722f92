// Command clients is two clients in Go for the tests of the stack, ordinary static
// programs without settings:
//
//	clients get URL         prints what the URL has
//	clients grpc HOST TEXT...  says the texts to the service of the package echo
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"sallyport/compose/internet/echo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "get":
		return get(ctx, args[1], stdout)
	case len(args) > 2 && args[0] == "grpc":
		return talk(ctx, args[1], args[2:], stdout)
	}
	return fmt.Errorf("unknown arguments %q", args)
}

func get(ctx context.Context, url string, stdout io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(stdout, resp.Body); err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	return nil
}

func talk(ctx context.Context, host string, texts []string, stdout io.Writer) error {
	c, err := grpc.NewClient("dns:///"+host+":443", grpc.WithTransportCredentials(credentials.NewTLS(nil)))
	if err != nil {
		return fmt.Errorf("talk to %s: %w", host, err)
	}
	defer c.Close()
	heard, err := echo.Talk(ctx, c, texts)
	if err != nil {
		return fmt.Errorf("talk to %s: %w", host, err)
	}
	_, err = fmt.Fprintln(stdout, "heard", strings.Join(heard, " "))
	return err
}
