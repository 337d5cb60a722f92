// Command mutate changes a package's code in one small way at a time and runs the
// package's tests on each change. A change that lives through them is one that no test
// would notice. All changes are built into one test program, of which the environment
// chooses one: so nothing is a change that does not compile, and a test counts only
// where it passes without one and reaches the code that was changed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutate: ")
	every := flag.Int("every", 1, "try only one of so many changes")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mutate [-every N] FOLDER")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 || *every < 1 {
		flag.Usage()
		os.Exit(2)
	}
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		log.Fatal(err)
	}
	lived, err := run(flag.Arg(0), *every, scratch)
	os.RemoveAll(scratch)
	if err != nil {
		log.Fatal(err)
	}
	if lived > 0 {
		os.Exit(1)
	}
}

// run prints what came of the changes of the package in folder, and says how many lived.
func run(folder string, every int, scratch string) (int, error) {
	changed, err := change(folder)
	if err != nil {
		return 0, err
	}
	suite, err := build(changed, scratch)
	if err != nil {
		return 0, err
	}
	if err := suite.control(); err != nil {
		return 0, err
	}
	count := map[verdict]int{}
	for n, c := range changed.changes {
		if n%every != 0 {
			continue
		}
		v := suite.try(n)
		count[v]++
		if v != noticed {
			fmt.Printf("%-11s %s: %s\n", v, c.at, c.what)
		}
	}
	fmt.Printf("%s: %d noticed, %d lived, %d not reached\n", folder, count[noticed], count[lived], count[notReached])
	return count[lived], nil
}

type verdict string

const (
	noticed    verdict = "noticed"
	lived      verdict = "lived"
	notReached verdict = "not reached"
)

// suite is the tests of a package whose code holds all changes.
type suite struct {
	program, dir, scratch string
	env                   []string
	tests                 []test
}

// test is one that passes when nothing is changed.
type test struct {
	name    string
	took    time.Duration
	reaches map[string]bool // the changes that it comes by, by number
}

// build makes the test program. What its tests build themselves holds the changes too.
func build(p *changedPackage, scratch string) (*suite, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range p.files {
		to := filepath.Join(scratch, filepath.Base(path))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return nil, err
		}
		overlay.Replace[path] = to
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return nil, err
	}
	s := &suite{program: filepath.Join(scratch, "tests"), dir: p.dir, scratch: scratch}
	s.env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+file))
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-o", s.program, ".")
	cmd.Dir, cmd.Env = s.dir, s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the tests: %w\n%s", err, out)
	}
	return s, nil
}

// control runs each test by itself without a change and notes which changes it comes
// by. A test that fails so is left out and named.
func (s *suite) control() error {
	out, err := s.command(context.Background(), "-test.list", "^(Test|Fuzz|Example)").Output()
	if err != nil {
		return fmt.Errorf("listing the tests: %w", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		file := filepath.Join(s.scratch, "reached")
		began := time.Now()
		cmd := s.command(context.Background(), "-test.run", "^"+name+"$", "-test.timeout", "5m")
		cmd.Env = append(cmd.Env, "MUTATE_REACHED="+file)
		if out, err := cmd.CombinedOutput(); err != nil {
			log.Printf("%s is left out, since it fails by itself: %s", name, lastLine(out))
			continue
		}
		t := test{name: name, took: time.Since(began), reaches: map[string]bool{}}
		reached, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		for n := range strings.FieldsSeq(string(reached)) {
			t.reaches[n] = true
		}
		s.tests = append(s.tests, t)
		os.Remove(file)
	}
	slices.SortStableFunc(s.tests, func(a, b test) int { return int(a.took - b.took) })
	return nil
}

// try runs the tests that reach change n: the quick ones together, then one by one.
func (s *suite) try(n int) verdict {
	var quick []string
	var slow []test
	var took time.Duration
	for _, t := range s.tests {
		switch {
		case !t.reaches[fmt.Sprint(n)]:
		case t.took < time.Second:
			quick, took = append(quick, t.name), took+t.took
		default:
			slow = append(slow, t)
		}
	}
	if len(quick)+len(slow) == 0 {
		return notReached
	}
	if len(quick) > 0 && !s.passes(n, strings.Join(quick, "|"), took) {
		return noticed
	}
	for _, t := range slow {
		if !s.passes(n, t.name, t.took) {
			return noticed
		}
	}
	return lived
}

// passes runs tests with change n. Those that take far longer than without it fail.
func (s *suite) passes(n int, tests string, took time.Duration) bool {
	limit := 10*time.Second + 5*took
	ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
	defer cancel()
	cmd := s.command(ctx, "-test.run", "^("+tests+")$", "-test.failfast", "-test.timeout", limit.String())
	cmd.Env = append(cmd.Env, fmt.Sprintf("MUTATE=%d", n))
	return cmd.Run() == nil
}

func (s *suite) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir, cmd.Env = s.dir, slices.Clone(s.env)
	cmd.WaitDelay = 5 * time.Second // for what a test left behind with its output
	return cmd
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
