package strictyaml

import (
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

func rules() Rules {
	return Rules{
		MaxBytes: 4 << 10, MaxLevels: 4, Needs: "it needs a name", NumberKeys: true,
		Quote:   strconv.QuoteToASCII,
		Show:    func(s string) string { s = strconv.QuoteToASCII(s); return s[1 : len(s)-1] },
		Suggest: func(string, []string) string { return "" },
	}
}

// read reads a file with name, tags and rooms.
func read(in io.Reader, rules Rules) (name string, tags []string, rooms []Pair, err error) {
	r := &Reader{Rules: rules, File: "f"}
	body := r.Document(in)
	if body == nil {
		return "", nil, nil, r.Err()
	}
	fields := r.Mapping(body, "", "name", "tags", "rooms")
	if n, ok := fields["name"]; ok {
		name, _, _ = r.Text(n, "name", "a name")
	}
	if n, ok := fields["tags"]; ok {
		for _, n := range r.List(n, "tags", "tags") {
			tag, _, _ := r.Scalar(n, "tags", "a tag")
			tags = append(tags, tag)
		}
	}
	if n, ok := fields["rooms"]; ok {
		rooms = r.Pairs(n, "rooms")
	}
	return name, tags, rooms, r.Err()
}

func TestRead(t *testing.T) {
	for _, text := range []string{
		"name: hall\ntags: [a, 7]\nrooms: {12: x, b: y}\n",
		"\ufeff---\r\nname: 'hall'\r\ntags:\r\n- a\r\n- 7\r\nrooms:\r\n  12: x\r\n  b: y\r\n...\r\n",
	} {
		name, tags, rooms, err := read(strings.NewReader(text), rules())
		if err != nil || name != "hall" || strings.Join(tags, " ") != "a 7" || len(rooms) != 2 || rooms[0].Key != "12" || rooms[1].Key != "b" {
			t.Errorf("%q: %q, %q, %v, %v", text, name, tags, rooms, err)
		}
	}
}

// TestFaults requires the faults of a file all at once, in the order of their places.
func TestFaults(t *testing.T) {
	terse := rules()
	terse.Terse, terse.NumberKeys = true, false
	for _, test := range []struct {
		text, want, terse string // terse is as want where it is ""
	}{
		{"rooms: {a: 1, a: 2}\nname: 7\nnam: x\nname: y\n",
			"f:1:15: rooms: \"a\" is here already, on line 1\nf:2:7: name: \"7\" is not a name\nf:3:1: unknown key \"nam\"; the keys here are name, tags, rooms\nf:4:1: \"name\" is here already, on line 2", ""},
		{"tags: x\nrooms: []\n", "f:1:7: tags: \"x\" is not a list: write [...] with the tags in it\nf:2:8: rooms: a list is not a mapping: write its keys with their values", ""},
		{"tags: []\nrooms: {}\n", "f:1:7: tags: the list of tags is empty\nf:2:8: rooms: is empty", ""},
		{"tags: [&a x, *a, {b: c}, null, !!str y]", "f:1:8: tags: an anchor or alias (there are none here) is not a tag\n" +
			"f:1:14: tags: an anchor or alias (there are none here) is not a tag\nf:1:18: tags: a mapping is not a tag\n" +
			"f:1:26: tags: an empty value is not a tag\nf:1:32: tags: a tag (there are none here) is not a tag", ""},
		{"rooms: {null: x}", "f:1:9: rooms: an empty value is not a plain key", `f:1:9: rooms: "null" is not a plain key`},
		{"", "f: the file is empty: it needs a name", ""},
		{"name: x\n---\nname: y\n", "f:3:1: a second document starts here: one file holds one document", ""},
		{"name: x\ntags: [[[[[y]]]]]", "f:2:11: nested more than 4 levels deep", ""},
		{"name: x # \xe9", "f:1:11: the byte 0xe9 is not UTF-8", "f: the file is not UTF-8"},
		{"\xff\xfen\x00", "f:1:1: the file is UTF-16: save it as UTF-8", "f: the file is not UTF-8"},
		{"name: x\nname: \u202ey", "f:2:7: the control character U+202E has no place here: remove it", "f:2:1: the control character U+202E has no place here: remove it"},
		{strings.Repeat("#", 4<<10) + "\n", "f: the file is longer than 4 KiB", ""},
		// With plain line ends it would be short enough, less what the bound cut off.
		{strings.Repeat("#\r\n", 1<<11), "f: the file is longer than 4 KiB", ""},
	} {
		want := test.want
		if _, _, _, err := read(strings.NewReader(test.text), rules()); err == nil || err.Error() != want {
			t.Errorf("%.60q: got\n%v\nwant\n%s", test.text, err, want)
		}
		if test.terse != "" {
			want = test.terse
		}
		if _, _, _, err := read(strings.NewReader(test.text), terse); err == nil || err.Error() != want {
			t.Errorf("terse, %.60q: got\n%v\nwant\n%s", test.text, err, want)
		}
	}
}

func TestNumberKeys(t *testing.T) {
	without := rules()
	without.NumberKeys = false
	if _, _, _, err := read(strings.NewReader("rooms: {12: x}"), without); err == nil || err.Error() != `f:1:9: rooms: "12" is not a plain key` {
		t.Error(err)
	}
}

func TestManyFaults(t *testing.T) {
	_, _, _, err := read(strings.NewReader(strings.Repeat("x: 1\n", 300)), rules())
	if es, _ := errors.AsType[FileErrors](err); len(es) != maxFaults+1 || es[maxFaults].Error() != "f: and 200 more faults" {
		t.Error(err)
	}
}

func TestUnreadable(t *testing.T) {
	_, _, _, err := read(iotest.ErrReader(&fs.PathError{Op: "read", Path: "f", Err: io.ErrClosedPipe}), rules())
	if !errors.Is(err, io.ErrClosedPipe) || err.Error() != "f: cannot be read: io: read/write on closed pipe" {
		t.Error(err)
	}
}

// TestZeroRules: who forgets the bounds reads nothing.
func TestZeroRules(t *testing.T) {
	for _, text := range []string{"name: x", "", "#"} {
		if _, _, _, err := read(strings.NewReader(text), Rules{}); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// FuzzRead requires that a file is read, or refused with places that are in it and in
// order, in text that is fit for a terminal.
func FuzzRead(f *testing.F) {
	f.Add([]byte("name: hall\ntags: [a, 7]\nrooms: {12: x}\n"))
	f.Add([]byte("name: &a x\n<<: *a\n? [b]\n: {c: !!str d}\n---\n"))
	f.Add([]byte("\ufeffname: |\r\n  \u202e\xff\r\ntags: - - -\r\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		_, _, _, err := read(strings.NewReader(string(src)), rules())
		if err == nil {
			return
		}
		es, ok := errors.AsType[FileErrors](err)
		if !ok || len(es) == 0 {
			t.Fatalf("the error is a %T: %v", err, err)
		}
		lines, last := strings.Count(string(src), "\n")+1, Pos{}
		for _, e := range es {
			p := Pos{e.Line, e.Column}
			if e.Problem == "" || p.Line < 0 || p.Line > lines || p.Column < 0 || p != (Pos{}) && p.Line < last.Line {
				t.Errorf("fault out of place: %#v", e)
			}
			last = p
			if s := e.Error(); strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) {
				t.Errorf("unfit for a terminal: %q", s)
			}
		}
	})
}
