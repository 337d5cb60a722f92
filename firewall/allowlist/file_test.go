package allowlist_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/rogpeppe/go-internal/txtar"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/firewalltest"
	"sallyport/firewall/review"
)

// maxBytes is the size of the largest allowlist.
const maxBytes = 1 << 20

var update = flag.Bool("update", false, "write what the tests got to testdata")

// TestFaults compares the messages about the files in testdata/faults, and wants
// that every file gives some.
//
// probe: P3, P1
// oracle: the message about each file, held against one in testdata
func TestFaults(t *testing.T) {
	paths, err := filepath.Glob("testdata/faults/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(archive.Files); i += 2 {
			in, want := archive.Files[i], &archive.Files[i+1]
			name := strings.TrimSuffix(filepath.Base(path), ".txtar") + "/" + in.Name
			t.Run(name, func(t *testing.T) {
				ps, err := allowlist.Parse(bytes.NewReader(in.Data), in.Name)
				if err == nil || ps != nil {
					t.Fatalf("no error, policies %v", ps.Names())
				}
				checkErrors(t, err, in.Data)
				got := err.Error() + "\n"
				if *update {
					want.Data = []byte(got)
				} else if got != string(want.Data) {
					t.Errorf("got\n%swant\n%s", got, want.Data)
				}
			})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkErrors requires that every fault has a place in the file and that no
// message holds bytes that could fool a terminal.
func checkErrors(t *testing.T, err error, src []byte) {
	t.Helper()
	es, ok := errors.AsType[allowlist.FileErrors](err)
	if !ok || len(es) == 0 {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	lines := bytes.Count(src, []byte("\n")) + 1
	line := 0
	for _, e := range es {
		if e.Problem == "" || e.Line < 0 || e.Line > lines || e.Line < line && e.Line != 0 {
			t.Errorf("fault out of place: %#v", e)
		}
		line = e.Line
		if s := e.Error(); firewall.Escape(s, len(s)+1000) != strings.ReplaceAll(s, `\`, `\\`) {
			t.Errorf("unescaped: %q", s)
		}
	}
}

// TestParseBounds reads files that are too much.
//
// probe: P1
// oracle: an error of bounded length for each; a file of the largest size is read
func TestParseBounds(t *testing.T) {
	head := "version: 1\npolicies: {p: {allow: any}}\n"
	if _, err := allowlist.Parse(strings.NewReader(head+strings.Repeat("#", maxBytes-len(head))), "f"); err != nil {
		t.Errorf("1 MiB: %v", err)
	}
	var manyGroups, manyPolicies strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&manyGroups, "h%d.example,", i)
		fmt.Fprintf(&manyPolicies, "  p%d: {allow: [g]}\n", i)
	}
	for name, text := range map[string]string{
		"over 1 MiB":     head + strings.Repeat("#", maxBytes-len(head)+1),
		"UTF-16":         "\xff\xfev\x00e\x00",
		"UTF-16BE":       "\xfe\xff\x00v\x00e",
		"Latin-1":        head + "# caf\xe9\n",
		"NUL":            head + "\x00",
		"bell":           head + "# \a",
		"lone CR":        head + "\rx: 1",
		"right to left":  "version: 1\npolicies: {p: {allow: [a.example\u202e]}}",
		"BOM inside":     head + "\ufeff",
		"deep flow":      head + "x: " + strings.Repeat("[", 500_000),
		"deep map":       head + "x: " + strings.Repeat("{a: ", 200_000),
		"deep block":     head + strings.Repeat("- ", 400_000),
		"deep questions": head + strings.Repeat("? ", 400_000),
		"many faults":    head + strings.Repeat("x: 1\n", 5000),
		"many entries":   "version: 1\ngroups: {g: [" + manyGroups.String() + "]}\npolicies:\n" + manyPolicies.String(),
	} {
		_, err := allowlist.Parse(strings.NewReader(text), "f")
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if n := len(err.Error()); n > 100<<10 {
			t.Errorf("%s: a message of %d bytes", name, n)
		}
	}
	broken := iotest.ErrReader(io.ErrClosedPipe)
	if _, err := allowlist.Parse(io.MultiReader(strings.NewReader(head), broken), "f"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("broken reader: %v", err)
	}
}

func TestParseForms(t *testing.T) {
	want := firewalltest.Policy(t, "version: 1\npolicies:\n  p:\n    allow:\n      - .a.example\n      - b.example\n", "p").Digest()
	for name, text := range map[string]string{
		"flow":           "{version: 1, policies: {p: {allow: [.a.example, b.example]}}}",
		"JSON":           `{"version": 1, "policies": {"p": {"allow": [".a.example", {"host": "b.example", "ports": [443]}]}}}`,
		"document marks": "---\nversion: 1\npolicies: {p: {allow: ['.a.example', b.example]}}\n...\n",
		"CRLF and BOM":   "\ufeffversion: 1\r\npolicies:\r\n  p:\r\n    allow: [.a.example, b.example]\r\n",
		"block entries":  "version: 1\npolicies:\n  p:\n    allow:\n    - host: .a.example\n      ports: [443]\n    - b.example\n",
		"other letters":  "# für München, 東京\nversion: 1\npolicies: {p: {allow: [.A.Example., b.example]}}\n",
	} {
		ps, err := allowlist.Parse(strings.NewReader(text), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p, _ := ps.Policy("p"); p.Digest() != want {
			t.Errorf("%s: another effect", name)
		}
	}
	p := firewalltest.Policy(t, "# 1\n\nversion: 1\r\npolicies:\r\n  p:\r\n    allow:\r\n      - .a.example\r\n", "p")
	if d := p.Decide(firewalltest.Name(t, "a.example"), 443); d.Line != 7 {
		t.Errorf("with CRLF the entry is on line %d, want 7", d.Line)
	}
}

func TestWarnings(t *testing.T) {
	ps := firewalltest.File(t, `version: 1
policies:
  p:
    allow:
      - .github.io
      - a.github.io
      - {host: git.example, ports: [22, 443]}
      - .githubusercontent.com
`)
	var got []string
	for _, w := range ps.Warnings() {
		got = append(got, fmt.Sprintf("%d %s", w.Line, w.Problem))
	}
	want := `5 anybody can get a host under ".github.io": name the hosts that are meant
7 the gate serves ports 80 and 443: nothing can reach port 22`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// TestNarrowingGoesThrough requires that nothing which takes hosts away, or is left over
// where somebody took hosts away, keeps a file from being read: it would leave in
// force what should be gone. What names too much stays a fault.
func TestNarrowingGoesThrough(t *testing.T) {
	const base = "version: 1\ngroups:\n  cdn: [cdn.example]\npolicies:\n  strict: {allow: [cdn, a.example]}\n"
	firewalltest.WantDecision(t, firewalltest.Policy(t, base, "strict"), "a.example", 443, firewall.Allow, firewall.ReasonListed, "a.example")
	for _, test := range []struct{ name, text, want string }{
		{"a policy that allows nothing", "policies:\n  strict: {allow: []}\n", ""},
		{"a child that takes nothing away any more", "policies:\n  strict: {allow: [b.example]}\n  child: {extends: strict, remove: [a.example]}\n",
			"4 policies.child.remove[0]: takes nothing away: neither what the policy extends nor its groups allow it"},
		{"a child that takes all away", "policies:\n  strict: {allow: [b.example]}\n  child: {extends: strict, remove: [b.example]}\n",
			"4 policies.child: allows nothing"},
		{"a group that nobody uses", "groups:\n  cdn: [cdn.example]\npolicies:\n  strict: {allow: [b.example]}\n",
			"3 groups.cdn: no policy uses this group: name it in one, or remove it"},
		{"a group without hosts", "groups:\n  cdn: []\npolicies:\n  strict: {allow: [cdn]}\n",
			"3 groups.cdn: the list of hosts is empty\n5 policies.strict: allows nothing"},
		{"a group that is gone", "policies:\n  strict: {allow: [b.example]}\n  child: {extends: strict, remove: [cdn]}\n",
			`4 policies.child.remove[0]: no group is called "cdn"; a host has a dot in it`},
		{"removed twice", "policies:\n  open: {allow: any}\n  strict: {extends: open, remove: [a.example, A.example]}\n",
			`4 policies.strict.remove[1]: "a.example" is in the list already, on line 4`},
		{"nothing to remove", "policies:\n  strict: {allow: [b.example], remove: []}\n",
			"3 policies.strict.remove: the list of groups and hosts is empty"},
	} {
		ps := firewalltest.File(t, "version: 1\n"+test.text)
		var got []string
		for _, w := range ps.Warnings() {
			got = append(got, fmt.Sprintf("%d %s: %s", w.Line, w.Field, w.Problem))
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, strings.Join(got, "\n"), test.want)
		}
		for _, name := range ps.Names() {
			p, _ := ps.Policy(name)
			if d := p.Decide(firewalltest.Name(t, "a.example"), 443); name != "open" && d.Allowed() {
				t.Errorf("%s: policy %s: %+v", test.name, name, d)
			}
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	_, err := allowlist.Load(filepath.Join(dir, "absent.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "absent.yaml: there is no such file") {
		t.Errorf("absent file: %v", err)
	}
	if _, err := allowlist.Load(dir); err == nil || !strings.HasPrefix(err.Error(), dir+": cannot be read: ") {
		t.Errorf("directory: %v", err)
	}
	pipe := filepath.Join(dir, "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := allowlist.Load(pipe); err == nil || err.Error() != pipe+": cannot be read: it is not a regular file" {
		t.Errorf("pipe: %v", err)
	}
	empty := filepath.Join(dir, "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ps, err := allowlist.Load(empty); err == nil || ps != nil {
		t.Errorf("empty file: %v, %v", ps, err)
	}
}

// FuzzParse requires that a file is refused with places, or gives the same
// policies twice, none of which goes below the floor.
func FuzzParse(f *testing.F) {
	f.Add([]byte(firewalltest.Anything))
	f.Add([]byte(firewalltest.Family))
	paths, _ := filepath.Glob("testdata/faults/*.txtar")
	for _, path := range append(paths, "../../allowlist.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		archive := txtar.Parse(data)
		f.Add(archive.Comment)
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	meta, _ := firewall.ParseName("metadata.google.internal")
	f.Fuzz(func(t *testing.T, src []byte) {
		ps, err := allowlist.Parse(bytes.NewReader(src), "f")
		if err != nil {
			checkErrors(t, err, src)
			return
		}
		again, err := allowlist.Parse(bytes.NewReader(src), "f")
		if err != nil || again.Digest() != ps.Digest() {
			t.Fatalf("the second time: %v, digests %q and %q", err, ps.Digest(), again.Digest())
		}
		if d := review.Diff(ps.Policies, again.Policies); len(d) != 0 {
			t.Fatalf("the second time it differs: %+v", d)
		}
		if len(ps.Names()) == 0 {
			t.Fatal("no policies and no error")
		}
		for _, name := range ps.Names() {
			p, _ := ps.Policy(name)
			if d := p.Decide(meta, 443); d.Allowed() || d.Reason != firewall.ReasonFloorName {
				t.Fatalf("policy %q: %+v", name, d)
			}
		}
	})
}
