package main

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// quiet is for what the standard library would log by itself.
var quiet = log.New(io.Discard, "", 0)

// keptHits bounds how many hits are kept.
const keptHits = 20000

// A hit is one thing that arrived: a DNS query, a TLS hello, a request, a
// connection or packet on a port where nothing should arrive.
type hit struct {
	Seq    int       `json:"seq"` // from 1, without gaps
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`             // dns, tls, http, https, tcp or udp
	Name   string    `json:"name,omitempty"`   // host that was asked for
	Detail string    `json:"detail,omitempty"` // query type; what a hello offers; method and path
	Auth   string    `json:"auth,omitempty"`   // scheme of a credential that a request carries, not the credential
	From   string    `json:"from"`
	To     string    `json:"to"` // own address and port
}

// hits is the log of what arrived. newHits makes it.
type hits struct {
	mu    sync.Mutex // guards what follows
	all   []hit      // the last keptHits
	last  int        // sequence number of the last
	lines *json.Encoder
}

// newHits returns a log that also writes each hit to w, as a line of JSON.
func newHits(w io.Writer) *hits { return &hits{lines: json.NewEncoder(w)} }

func (h *hits) add(one hit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	one.Seq = h.last
	if len(h.all) == keptHits {
		h.all = append(h.all[:0], h.all[keptHits/2:]...)
	}
	h.all = append(h.all, one)
	_ = h.lines.Encode(one) // standard output; there is nowhere else to complain
}

// after returns the hits with a sequence number above seq.
func (h *hits) after(seq int) []hit {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := []hit{}
	for _, one := range h.all {
		if one.Seq > seq {
			found = append(found, one)
		}
	}
	return found
}

// count notes each request before next answers it.
func (h *hits) count(kind string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		h.add(hit{Time: time.Now(), Kind: kind, Name: hostOf(r), Detail: r.Method + " " + r.URL.RequestURI(),
			Auth: scheme, From: r.RemoteAddr, To: to.String()})
		next.ServeHTTP(w, r)
	})
}

// admin serves GET /hits?after=SEQ, a JSON array.
func (h *hits) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hits", func(w http.ResponseWriter, r *http.Request) {
		seq := 0
		if s := r.FormValue("after"); s != "" {
			var err error
			if seq, err = strconv.Atoi(s); err != nil {
				http.Error(w, "after must be a number", http.StatusBadRequest)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(h.after(seq)) // a client that has gone
	})
	return mux
}
