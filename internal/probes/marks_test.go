package probes

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

const marked = `package x

// TestWhole is marked as a whole.
//
// probe: N1, N2
// oracle: a listener that
// counts.
func TestWhole(t *testing.T) {}

// oracle: the log
func FuzzRows(f *testing.F) {
	for name, row := range map[string]int{
		"in a map": 1, // probe: D1
		"unmarked": 2,
		// probe: D2
		"after its mark": 3,
		"and one more": 4,

		"not this one": 5,
	} {
	}
	rows := []row{
		{"first", 1}, // probe: D3
		{
			name: "second", // probe: D4
			n:    2,
		},
	}
	// probe: D6
	t.Run("below", func(t *testing.T) {})
	t.Run("a subtest", func(t *testing.T) { // probe: D5
		f()
	})
}

func TestUnmarked(t *testing.T) {}
`

func TestFind(t *testing.T) {
	tests, err := Find(fstest.MapFS{
		"a/b/x_test.go":          {Data: []byte(marked)},
		"a/testdata/x_test.go":   {Data: []byte("no Go")},
		"a/.hidden/x_test.go":    {Data: []byte("no Go")},
		"a/x.go":                 {Data: []byte("no Go")},
		"node_modules/x_test.go": {Data: []byte("no Go")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Test{
		{"a/b/x_test.go", "TestWhole", "a listener that counts", []Mark{{"N1", ""}, {"N2", ""}}},
		{"a/b/x_test.go", "FuzzRows", "the log", []Mark{
			{"D1", "in a map"}, {"D2", "after its mark"}, {"D2", "and one more"},
			{"D3", "first"}, {"D4", "second"}, {"D6", "below"}, {"D5", "a subtest"},
		}},
	}
	if !reflect.DeepEqual(tests, want) {
		t.Errorf("found\n%+v, want\n%+v", tests, want)
	}
	if tests[0].Package() != "a/b" {
		t.Errorf("package %q", tests[0].Package())
	}
}

func TestFindRefuses(t *testing.T) {
	for name, test := range map[string]struct{ src, want string }{
		"no test's":  {"package x\n\n// probe: N1\nfunc helper() {}\n", "x_test.go:3: the mark belongs to no test"},
		"a method's": {"package x\n\n// probe: N1\nfunc (r rig) TestX() {}\n", "x_test.go:3: the mark belongs to no test"},
		"no row": {"package x\n\n// oracle: o\nfunc TestX(t *testing.T) {\n\tx := 1 // probe: N1\n\t_ = x\n}\n",
			"x_test.go:5: the mark stands beside no row"},
		"no Go": {"pack", "expected 'package'"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Find(fstest.MapFS{"x_test.go": {Data: []byte(test.src)}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	groups := []Group{
		{Letter: "A", Probes: []Probe{
			{ID: "A1", Tried: "t", Must: "m"},
			{ID: "A2", Tried: "t", Must: "m", Residual: "Why"},
		}},
	}
	right := Test{File: "x_test.go", Name: "TestX", Oracle: "o", Marks: []Mark{{Probe: "A1"}}}
	if err := Check(groups, []Test{right}); err != nil {
		t.Errorf("a residual needs no test: %v", err)
	}
	for name, test := range map[string]struct {
		groups []Group
		tests  []Test
		want   string
	}{
		"no test":       {groups, nil, "A1 has no test"},
		"unknown probe": {groups, []Test{right, {Name: "TestY", Oracle: "o", Marks: []Mark{{Probe: "A9"}}}}, "TestY marks A9"},
		"no oracle":     {groups, []Test{right, {Name: "TestY", Marks: []Mark{{Probe: "A1"}}}}, "TestY has a mark, and no oracle"},
		"other letter":  {[]Group{{Letter: "B", Probes: groups[0].Probes}}, []Test{right}, "A1 is twice"},
		"no words":      {[]Group{{Letter: "A", Probes: []Probe{{ID: "A1"}}}}, []Test{right}, "A1 does not say"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Check(test.groups, test.tests); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	groups := []Group{{Letter: "A", Title: "First", Probes: []Probe{
		{ID: "A1", Tried: "a|b", Must: "m"},
		{ID: "A2", Tried: "t", Must: "m", Residual: "What stays"},
		{ID: "A3", Tried: "t", Must: "m"},
	}}}
	tests := []Test{
		{"a/b/x_test.go", "TestWhole", "counts", []Mark{{"A1", ""}}},
		{"compose/y_test.go", "TestRows", "a host", []Mark{{"A3", ""}, {"A1", "one"}, {"A1", "t*o"}}},
		{"z_test.go", "TestRoot", "the tree", []Mark{{"A3", ""}}},
	}
	var b strings.Builder
	if err := Write(&b, groups, tests); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"## A. First",
		`| A1 | a\|b | m | [b.TestWhole](a/b/x_test.go), [compose.TestRows](compose/y_test.go) (` + "`one`, `t*o`) |",
		"| A2 | t | m | residual: [What stays](docs/threat-model.md#residuals-what-stays-possible) |",
		"| A3 | t | m | [compose.TestRows](compose/y_test.go), [sallyport.TestRoot](z_test.go) |",
		"| [b.TestWhole](a/b/x_test.go) | package | A1 | counts |",
		"| [compose.TestRows](compose/y_test.go) | real engine | A1, A3 | a host |",
	} {
		if !strings.Contains(b.String(), "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, b.String())
		}
	}
}
