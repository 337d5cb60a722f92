package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
)

// PartLength is the shortest value that can be learnt, and the shortest part of one that
// is found, in bytes: long enough that it does not turn up by chance.
const PartLength = 12

// parts are the parts of values, folded to lower case: every piece of
// PartLength bytes of each spelling.
type parts struct {
	mu        sync.RWMutex // guards what follows; a search holds it for one piece of text
	spellings []string
	marks     map[string]string // by piece: what is put in its place
	likely    [1 << 16]bool     // by the hash of a piece's first bytes: most text is passed over by it
	occurs    [256]bool         // the bytes that a spelling has
}

// Learn adds a value that is to be found in parts and encoded from the next piece of
// every text on. Values shorter than 12 bytes are left alone.
func (r *Redactor) Learn(name, value string) {
	r.learning.Lock()
	defer r.learning.Unlock()
	p := r.parts.Load()
	if p != nil && p.knows(value) { // as most runs' redactors do the keys
		return
	}
	if p == nil || r.shared {
		p = p.clone()
		r.shared = false
	}
	p.learn("["+name+" redacted]", value)
	r.parts.Store(p)
}

// knows reports whether all pieces of a value as it is have been learnt: with each, its
// encodings have.
func (p *parts) knows(value string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	s := string(fold([]byte(value)))
	for i := firstPiece(value); i+PartLength <= len(s); i++ {
		if p.marks[s[i:i+PartLength]] == "" {
			return false
		}
	}
	return len(s) >= PartLength
}

// firstPiece is where the pieces of a value as it is begin: what tells its issuer is in no
// piece by itself.
func firstPiece(value string) int { return max(0, issuer(value)-PartLength+1) }

func (p *parts) learn(mark, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, s := range spellings(value) {
		s = string(fold([]byte(s)))
		if len(s) < PartLength {
			continue
		}
		fresh, i := false, 0
		if n == 0 { // as it is
			i = firstPiece(value)
		}
		for ; i+PartLength <= len(s); i++ {
			fresh = p.add(s[i:i+PartLength], mark) || fresh
		}
		if fresh { // spellings that differ in capitals alone are one
			p.spellings = append(p.spellings, s)
		}
		for i := range len(s) {
			p.occurs[s[i]] = true
		}
	}
}

// issuer is the length of what a long value begins with that anybody may write: it
// tells whose key it is, and ends with the last dash of the first 16 bytes.
func issuer(value string) int {
	n := strings.LastIndexAny(value[:min(16, len(value))], "-_") + 1
	if 3*n > len(value) {
		return 0
	}
	return n
}

// add reports whether the piece is a new one.
func (p *parts) add(piece, mark string) bool {
	if _, ok := p.marks[piece]; ok {
		return false
	}
	p.marks[piece] = mark
	p.likely[hash([]byte(piece))] = true
	return true
}

// clone returns parts that learn for themselves, of nil empty ones.
func (p *parts) clone() *parts {
	if p == nil {
		return &parts{marks: map[string]string{}}
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return &parts{spellings: slices.Clone(p.spellings), marks: maps.Clone(p.marks), likely: p.likely, occurs: p.occurs}
}

// spellings are the ways in which a value is looked for, first as it is. Base64 depends on what
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

// hashed is how many bytes hash looks at.
const hashed = 4

// hash is of a piece's first bytes.
func hash(b []byte) uint16 {
	x := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	return uint16(x * 2654435761 >> 16)
}

// at returns the mark of the piece that begins at i of a folded text, or "".
func (p *parts) at(folded []byte, i int) string {
	if i+PartLength > len(folded) || !p.likely[hash(folded[i:])] {
		return ""
	}
	return p.marks[string(folded[i:i+PartLength])]
}

// pending returns where the longest end of a folded text begins that may be the
// beginning of a piece.
func (p *parts) pending(folded []byte) int {
	first := len(folded)
	for first > max(0, len(folded)-PartLength+1) && p.occurs[folded[first-1]] {
		first--
	}
	for i := first; i < len(folded); i++ {
		if p.begins(folded[i:]) {
			return i
		}
	}
	return len(folded)
}

// begins reports whether a piece begins with a text, which is shorter. It looks for
// the text itself: a table of all beginnings would take ten times what the pieces do.
func (p *parts) begins(text []byte) bool {
	if len(text) >= hashed && !p.likely[hash(text)] {
		return false
	}
	return slices.ContainsFunc(p.spellings, func(s string) bool {
		return strings.Contains(s[:len(s)-PartLength+len(text)], string(text))
	})
}

// A remainder is where a search for parts stands within a stream.
type remainder struct {
	held    []byte // may belong to a part
	covered int    // as many bytes of held do
	within  bool   // the last byte that was let go belonged to a part
	found   bool   // there was a part
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
	p.mu.RLock()
	defer p.mu.RUnlock()
	return r.search(p, text, folded, p.pending(folded))
}

// search lets the bytes before keep go, without those that belong to parts.
// Parts that touch or overlap get one mark.
func (r *remainder) search(p *parts, text, folded []byte, keep int) []byte {
	var out []byte
	end := r.covered // of the last part
	for i := range keep {
		mark := p.at(folded, i)
		if mark == "" {
			continue
		}
		if i > end {
			out = append(out, text[end:i]...)
			r.within = false
		}
		if !r.within {
			out = append(out, mark...)
			r.within, r.found = true, true
		}
		end = max(end, i+PartLength)
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
	p.mu.RLock()
	defer p.mu.RUnlock()
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
