// Command list prints, in Markdown, what an attacker would try against sallyport, which
// test tries it and where that test looks for what got through. It reads the tests below
// the working directory, which must be the repository's root.
package main

import (
	"fmt"
	"os"

	"sallyport/internal/probes"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "list:", err)
		os.Exit(1)
	}
}

func run() error {
	tests, err := probes.Find(os.DirFS("."))
	if err != nil {
		return err
	}
	return probes.Write(os.Stdout, probes.Catalogue, tests)
}
