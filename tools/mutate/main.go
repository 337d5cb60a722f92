// Command mutate changes a package's code in one small way at a time and runs the
// package's tests on each change. A change that lives through them is one that no test
// would notice. All changes are built into one test program, of which the environment
// chooses one: so nothing is a change that does not compile, and a test counts only
// where it passes without one and reaches the code that was changed. Tests of other
// packages can be run beside the package's own.
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
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mutate [-every N] FOLDER [FOLDER WITH MORE TESTS]...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() < 1 || *every < 1 {
		flag.Usage()
		os.Exit(2)
	}
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		log.Fatal(err)
	}
	lived, err := run(flag.Args(), *every, scratch)
	os.RemoveAll(scratch)
	if err != nil {
		log.Fatal(err)
	}
	if lived > 0 {
		os.Exit(1)
	}
}

// run prints what came of the changes of the package in the first folder, and says how
// many lived through the tests of all.
func run(folders []string, every int, scratch string) (int, error) {
	changed, err := change(folders[0])
	if err != nil {
		return 0, err
	}
	suite, err := overlay(changed, scratch)
	if err != nil {
		return 0, err
	}
	for i, folder := range folders {
		if err := suite.control(folder, filepath.Join(scratch, fmt.Sprintf("tests-%d", i))); err != nil {
			return 0, fmt.Errorf("%s: %w", folder, err)
		}
	}
	slices.SortStableFunc(suite.tests, func(a, b test) int { return int(a.took - b.took) })
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
	fmt.Printf("%s: %d noticed, %d lived, %d not reached\n", folders[0], count[noticed], count[lived], count[notReached])
	return count[lived], nil
}

type verdict string

const (
	noticed    verdict = "noticed"
	lived      verdict = "lived"
	notReached verdict = "not reached"
)

// suite is tests, built with code that holds all changes.
type suite struct {
	scratch string
	env     []string
	tests   []test
}

// test is one that passes when nothing is changed.
type test struct {
	*program
	name    string
	took    time.Duration
	reaches map[string]bool // the changes that it comes by, by number
}

// program is the tests of one package.
type program struct{ path, dir string }

// overlay writes the changed code down, for go to take in place of the package's. What
// the tests build themselves holds the changes too.
func overlay(p *changedPackage, scratch string) (*suite, error) {
	list := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range p.files {
		to := filepath.Join(scratch, filepath.Base(path))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return nil, err
		}
		list.Replace[path] = to
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " -overlay=" + file)
	return &suite{scratch: scratch, env: append(os.Environ(), "GOFLAGS="+flags)}, nil
}

// control builds the tests of a folder, runs each by itself without a change and notes
// which changes it comes by. A test that fails so is left out and named.
func (s *suite) control(folder, path string) error {
	p := &program{path: path, dir: folder}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-o", path, ".")
	cmd.Dir, cmd.Env = folder, s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests: %w\n%s", err, out)
	}
	out, err := s.command(context.Background(), p, "-test.list", "^(Test|Fuzz|Example)").Output()
	if err != nil {
		return fmt.Errorf("listing the tests: %w", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		file := filepath.Join(s.scratch, "reached")
		began := time.Now()
		cmd := s.command(context.Background(), p, "-test.run", "^"+name+"$", "-test.timeout", "5m")
		cmd.Env = append(cmd.Env, "MUTATE_REACHED="+file)
		if out, err := cmd.CombinedOutput(); err != nil {
			log.Printf("%s is left out, since it fails by itself: %s", name, lastLine(out))
			continue
		}
		t := test{program: p, name: name, took: time.Since(began), reaches: map[string]bool{}}
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
	return nil
}

// try runs the tests that reach change n: the quick ones of a package together, then
// the others one by one.
func (s *suite) try(n int) verdict {
	var programs []*program // in the order of their quickest test
	quick := map[*program][]test{}
	var slow []test
	for _, t := range s.tests {
		switch {
		case !t.reaches[fmt.Sprint(n)]:
		case t.took < time.Second:
			if quick[t.program] == nil {
				programs = append(programs, t.program)
			}
			quick[t.program] = append(quick[t.program], t)
		default:
			slow = append(slow, t)
		}
	}
	if len(programs)+len(slow) == 0 {
		return notReached
	}
	for _, p := range programs {
		if !s.pass(n, quick[p]...) {
			return noticed
		}
	}
	for _, t := range slow {
		if !s.pass(n, t) {
			return noticed
		}
	}
	return lived
}

// pass runs tests of one package with change n. Those that take far longer than without
// it fail.
func (s *suite) pass(n int, tests ...test) bool {
	var names []string
	limit := 10 * time.Second
	for _, t := range tests {
		names, limit = append(names, t.name), limit+5*t.took
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
	defer cancel()
	cmd := s.command(ctx, tests[0].program, "-test.run", "^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.timeout", limit.String())
	cmd.Env = append(cmd.Env, fmt.Sprintf("MUTATE=%d", n))
	return cmd.Run() == nil
}

func (s *suite) command(ctx context.Context, p *program, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir, cmd.Env = p.dir, slices.Clone(s.env)
	cmd.WaitDelay = 5 * time.Second // for what a test left behind with its output
	return cmd
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
