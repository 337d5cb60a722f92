package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// partLength is the shortest part of a learnt value that is found, in bytes: long
// enough that it does not turn up by chance.
const partLength = 12

// parts are the parts of learnt values, folded to lower case: every piece of
// partLength bytes of each spelling. They are not changed once made.
type parts struct {
	learnt []learnt
	marks  map[string][]byte // by piece: what is put in its place
	begins map[string]bool   // shorter beginnings of pieces
	likely [1 << 16]bool     // by the hash of a piece's first bytes: most text is passed over by it
}

type learnt struct{ name, value string }

// Learn adds a value that is to be found in parts and encoded as well. Values
// shorter than 12 bytes are left alone.
func (r *Redactor) Learn(name, value string) {
	for {
		old := r.parts.Load()
		var all []learnt
		if old != nil {
			all = append(all, old.learnt...)
		}
		if r.parts.CompareAndSwap(old, newParts(append(all, learnt{name, value}))) {
			return
		}
	}
}

func newParts(all []learnt) *parts {
	p := &parts{learnt: all, marks: map[string][]byte{}, begins: map[string]bool{}}
	for _, l := range all {
		mark := []byte("[" + l.name + " redacted]")
		for _, s := range spellings(l.value) {
			s = string(fold([]byte(s)))
			for i := 0; i+partLength <= len(s); i++ {
				p.add(s[i:i+partLength], mark)
			}
		}
	}
	return p
}

func (p *parts) add(piece string, mark []byte) {
	if p.marks[piece] != nil {
		return
	}
	p.marks[piece] = mark
	p.likely[hash([]byte(piece))] = true
	for n := 1; n < len(piece); n++ {
		p.begins[piece[:n]] = true
	}
}

// spellings are the ways in which a value is looked for. Base64 depends on what
// comes before, by three ways to fall into groups of three bytes.
func spellings(value string) []string {
	var percent strings.Builder
	for i := range len(value) {
		percent.WriteString("%" + hex.EncodeToString([]byte{value[i]}))
	}
	all := []string{value, hex.EncodeToString([]byte(value)), percent.String()}
	for before := range 3 {
		padded := append(make([]byte, before), value...)
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := e.EncodeToString(padded)
			if before > 0 {
				text = text[before+1:] // characters that hold bits of what comes before
			}
			if len(padded)%3 != 0 {
				text = text[:len(text)-1] // one that holds bits of what comes after
			}
			all = append(all, text)
		}
	}
	return all
}

// hash is of a piece's first four bytes.
func hash(b []byte) uint16 {
	x := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	return uint16(x * 2654435761 >> 16)
}

// at returns the mark of the piece that begins at i of a folded text, or nil.
func (p *parts) at(folded []byte, i int) []byte {
	if i+partLength > len(folded) || !p.likely[hash(folded[i:])] {
		return nil
	}
	return p.marks[string(folded[i:i+partLength])]
}

// pending returns where the longest end of a folded text begins that may be the
// beginning of a piece.
func (p *parts) pending(folded []byte) int {
	for i := max(0, len(folded)-partLength+1); i < len(folded); i++ {
		if p.begins[string(folded[i:])] {
			return i
		}
	}
	return len(folded)
}

// A remainder is where a search for parts stands within a stream.
type remainder struct {
	held    []byte // may belong to a part
	covered int    // as many bytes of held do
	within  bool   // the last byte that was let go belonged to a part
}

// next searches the next bytes and returns what is certain so far.
func (r *remainder) next(p *parts, text []byte) []byte {
	if p == nil {
		return text
	}
	if len(r.held) > 0 {
		text = append(r.held, text...)
		r.held = nil
	}
	folded := fold(text)
	return r.search(p, text, folded, p.pending(folded))
}

// search lets the bytes before keep go, without those that belong to parts.
// Parts that touch or overlap get one mark.
func (r *remainder) search(p *parts, text, folded []byte, keep int) []byte {
	var out []byte
	end := r.covered // of the last part
	for i := range keep {
		mark := p.at(folded, i)
		if mark == nil {
			continue
		}
		if i > end {
			out = append(out, text[end:i]...)
			r.within = false
		}
		if !r.within {
			out = append(out, mark...)
			r.within = true
		}
		end = max(end, i+partLength)
	}
	if end < keep {
		out = join(out, text[end:keep])
		r.within = false
	}
	r.covered = max(0, end-keep)
	r.held = bytes.Clone(text[keep:])
	return out
}

// flush returns what was held back.
func (r *remainder) flush(p *parts) []byte {
	if p == nil {
		return r.held
	}
	held := r.held
	r.held = nil
	return r.search(p, held, fold(held), len(held))
}

// fold returns a copy with the capital letters of ASCII made small.
func fold(text []byte) []byte {
	folded := bytes.Clone(text)
	for i, c := range folded {
		if 'A' <= c && c <= 'Z' {
			folded[i] = c + 'a' - 'A'
		}
	}
	return folded
}
