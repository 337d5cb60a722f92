// Package metrics are what the gate counts, for Prometheus.
package metrics

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/resolve"
)

// The labels of the metrics. Their values come from the code and from the names
// of policies, never from a sandbox: no host, no address, no run.
const (
	labelKind      = "kind"
	labelVerdict   = "verdict"
	labelReason    = "reason"
	labelPolicy    = "policy"
	labelDirection = "direction"
	labelTransport = "transport"
	labelOutcome   = "outcome"
)

// Metrics are what the gate counts, for Prometheus. docs/operating.md has a row
// for each.
type Metrics struct {
	registry  *prometheus.Registry
	decisions *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	durations *prometheus.HistogramVec
	questions *prometheus.HistogramVec
	cache     *prometheus.CounterVec

	state atomic.Pointer[func() State]

	mu     sync.RWMutex // guards counts
	counts map[decisionKey]*decisionCount
}

// New makes the metrics of one daemon, those of Go and of the process
// among them.
func New() *Metrics {
	m := &Metrics{
		registry:  prometheus.NewRegistry(),
		counts:    make(map[decisionKey]*decisionCount),
		decisions: counters("decisions_total", "Decisions made.", labelKind, labelVerdict, labelReason, labelPolicy),
		bytes:     counters("bytes_total", "Bytes relayed: up is from sandboxes to hosts.", labelDirection, labelKind, labelPolicy),
		durations: histograms("decision_seconds", "Time from a connection or request to its end.",
			[]float64{.001, .01, .1, 1, 10, 60, 600}, labelKind, labelVerdict),
		questions: histograms("resolver_seconds", "Time of one question to one DNS server.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}, labelTransport, labelOutcome),
		cache: counters("resolver_cache_total", "Look-ups that a cell's cache had or had not.", labelOutcome),
	}
	m.registry.MustRegister(m.decisions, m.bytes, m.durations, m.questions, m.cache, collector{m},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

const namespace = "sallyport"

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// A State is what the gate has now.
type State struct {
	Leases      int
	Connections int64 // of sandboxes, that are open
	// Stalled is the memory that connections hold for an end that does not read, and
	// StalledLimit as much as they may, in bytes.
	Stalled, StalledLimit int64
	// Reloads are the allowlists read anew and taken, RefusedReloads those refused, and
	// Current says whether the last one is in force.
	Reloads, RefusedReloads int64
	Current                 bool
	// Faults are the writes of decisions that failed.
	Faults int64
}

// Report has the metrics show what state returns, too, whenever they are asked for.
func (m *Metrics) Report(state func() State) { m.state.Store(&state) }

// A collector collects the State.
type collector struct{ *Metrics }

var (
	leasesDesc      = describe("leases", "Cells that are leased.")
	connectionsDesc = describe("connections", "Connections of sandboxes that are open.")
	stalledDesc     = describe("stalled_bytes", "Memory that connections hold for an end that does not read.")
	stalledMaxDesc  = describe("stalled_bytes_limit", "As much as they may hold, over all cells.")
	reloadsDesc     = describe("reloads_total", "Allowlists read anew.", labelOutcome)
	faultsDesc      = describe("log_sink_errors_total", "Writes of decisions to the log or to their file that failed.")
	currentDesc     = describe("last_reload_successful", "1 if the allowlist that was read last is in force, 0 if it was refused.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leasesDesc, connectionsDesc, stalledDesc, stalledMaxDesc, reloadsDesc, currentDesc, faultsDesc} {
		to <- d
	}
}

func (m collector) Collect(to chan<- prometheus.Metric) {
	report := m.state.Load()
	if report == nil {
		return
	}
	s := (*report)()
	current := 0.0
	if s.Current {
		current = 1
	}
	value := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	value(leasesDesc, prometheus.GaugeValue, float64(s.Leases))
	value(connectionsDesc, prometheus.GaugeValue, float64(s.Connections))
	value(stalledDesc, prometheus.GaugeValue, float64(s.Stalled))
	value(stalledMaxDesc, prometheus.GaugeValue, float64(s.StalledLimit))
	value(reloadsDesc, prometheus.CounterValue, float64(s.Reloads), "ok")
	value(reloadsDesc, prometheus.CounterValue, float64(s.RefusedReloads), "refused")
	value(faultsDesc, prometheus.CounterValue, float64(s.Faults))
	value(currentDesc, prometheus.GaugeValue, current)
}

// A decisionKey is what tells decisions apart in the metrics.
type decisionKey struct {
	kind    account.Kind
	verdict firewall.Verdict
	reason  firewall.Reason
	policy  string
}

// A decisionCount is what is counted of the decisions of one key.
type decisionCount struct {
	decisions prometheus.Counter
	durations prometheus.Observer
	up, down  prometheus.Counter
}

// Decided counts decisions. It is on the way of every query: looking the counters
// up by their labels each time would cost several times as much, and those of
// one batch are few.
func (m *Metrics) Decided(records []account.Record) {
	var last [2]struct {
		key   decisionKey
		count *decisionCount
	}
	for i := range records {
		r := &records[i]
		key := decisionKey{r.Kind, r.Verdict, r.Reason, r.Policy}
		at := 0
		if r.Verdict == firewall.Allow {
			at = 1
		}
		l := &last[at]
		if l.count == nil || l.key != key {
			l.key, l.count = key, m.countOf(key)
		}
		l.count.add(r)
	}
}

func (c *decisionCount) add(r *account.Record) {
	c.decisions.Add(float64(max(r.Count, 1)))
	if r.Kind != account.KindDNS { // which takes no milliseconds
		c.durations.Observe(float64(r.DurationMS) / 1000)
	}
	if r.BytesUp > 0 {
		c.up.Add(float64(r.BytesUp))
	}
	if r.BytesDown > 0 {
		c.down.Add(float64(r.BytesDown))
	}
}

func (m *Metrics) countOf(k decisionKey) *decisionCount {
	m.mu.RLock()
	c := m.counts[k]
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c = m.counts[k]; c == nil {
		kind, verdict, reason := string(k.kind), string(k.verdict), string(k.reason)
		c = &decisionCount{
			decisions: m.decisions.WithLabelValues(kind, verdict, reason, k.policy),
			up:        m.bytes.WithLabelValues("up", kind, k.policy),
			down:      m.bytes.WithLabelValues("down", kind, k.policy),
		}
		if k.kind != account.KindDNS {
			c.durations = m.durations.WithLabelValues(kind, verdict)
		}
		k.policy = strings.Clone(k.policy)
		m.counts[k] = c
	}
	return c
}

// Asked counts a question to a DNS server.
func (m *Metrics) Asked(server resolve.Server, took time.Duration, answered bool) {
	outcome := "failed"
	if answered {
		outcome = "answered"
	}
	m.questions.WithLabelValues(string(server.Transport), outcome).Observe(took.Seconds())
}

// Cached counts a look-up in a cell's cache.
func (m *Metrics) Cached(hit bool) {
	outcome := "miss"
	if hit {
		outcome = "hit"
	}
	m.cache.WithLabelValues(outcome).Inc()
}

// Gatherer has the metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler serves the metrics in the format that the scraper asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
