package dispatch

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sallyport/executor/api"
	"sallyport/executor/plan"
	"sallyport/executor/proof"
)

// metricsPrefix begins the name of each metric of the executor's own.
const metricsPrefix = "sallyport_executor"

// The buckets, in seconds.
var (
	runBuckets   = []float64{.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600, 21600}
	stageBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600}
)

// A CellCounter is a backend.Cells that tells how many cells there are.
type CellCounter interface {
	// Count returns the cells that wait for a run and those that are lent.
	Count() (ready, lent int)
}

// metrics are what the executor counts, for Prometheus; docs/operating.md has a row
// for each. Their labels come from the code, the agents and the names of policies:
// there is none for a run, a task, a host or a caller.
type metrics struct {
	registry *prometheus.Registry
	runs     *prometheus.CounterVec   // by agent, policy, code
	seconds  *prometheus.HistogramVec // by agent
	stages   *prometheus.HistogramVec // by stage
	refused  *prometheus.CounterVec   // by code
	checks   *prometheus.CounterVec   // by outcome
	tokens   *prometheus.CounterVec   // by agent, kind
	cost     *prometheus.CounterVec   // by agent
}

func newMetrics(d *Dispatcher) *metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricsPrefix + "_" + name, Help: help}, labels)
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricsPrefix + "_" + name, Help: help, Buckets: buckets}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		runs:     counters("runs_total", "Runs that have ended, by the code of their error; ok for none.", "agent", "policy", "code"),
		seconds:  histograms("run_seconds", "Time of a run from its acceptance to its end.", runBuckets, "agent"),
		stages:   histograms("stage_seconds", "Time that a run took from the stage before to this one.", stageBuckets, "stage"),
		refused:  counters("refused_total", "Requests that were refused before anything was started.", "code"),
		checks:   counters("boundary_checks_total", "Attempts to get out of a cell.", "outcome"),
		tokens:   counters("tokens_total", "Tokens that agents have reported.", "agent", "kind"),
		cost:     counters("cost_usd_total", "Cost in US dollars that agents have reported.", "agent"),
	}
	for _, outcome := range []string{proof.Held, proof.Broken, proof.Unknown} {
		m.checks.WithLabelValues(outcome) // there from the start, so that a rate can be taken of the first
	}
	m.registry.MustRegister(m.runs, m.seconds, m.stages, m.refused, m.checks, m.tokens, m.cost, gauges{d},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// ended counts a run.
func (m *metrics) ended(p *plan.Plan, res api.Result) {
	agent, code := p.Adapter.Name, "ok"
	if res.Error != nil {
		code = string(res.Error.Code)
	}
	m.runs.WithLabelValues(agent, p.Policy, code).Inc()
	m.seconds.WithLabelValues(agent).Observe(float64(res.DurationMS) / 1000)
	m.cost.WithLabelValues(agent).Add(max(res.CostUSD, 0))
	for kind, n := range map[string]int64{
		"input": res.InputTokens, "output": res.OutputTokens,
		"cache_read": res.CacheReadInputTokens, "cache_creation": res.CacheCreationInputTokens,
	} {
		m.tokens.WithLabelValues(agent, kind).Add(float64(max(n, 0)))
	}
	m.stagesOf(res.Timings)
}

// stagesOf counts the time between each stage that a run reached and the one before.
func (m *metrics) stagesOf(t api.Timings) {
	last := int64(0)
	for _, stage := range []struct {
		name string
		at   int64
	}{
		{"policy", t.Policy}, {"queue", t.Queue}, {"token", t.Token}, {"cell", t.Cell}, {"start", t.Start},
		{"ready", t.Ready}, {"first_output", t.FirstOutput}, {"end", t.Total},
	} {
		if stage.at >= 0 {
			m.stages.WithLabelValues(stage.name).Observe(float64(max(stage.at-last, 0)) / 1000)
			last = stage.at
		}
	}
}

// Gauges collect what the dispatcher has now.
type gauges struct{ *Dispatcher }

var (
	runsDesc     = prometheus.NewDesc(metricsPrefix+"_runs", "Runs under way.", []string{"state"}, nil)
	limitDesc    = prometheus.NewDesc(metricsPrefix+"_runs_limit", "Runs that there may be.", []string{"state"}, nil)
	cellsDesc    = prometheus.NewDesc(metricsPrefix+"_cells", "Cells that exist.", []string{"state"}, nil)
	boundaryDesc = prometheus.NewDesc(metricsPrefix+"_boundary_holds", "1 if the last check of the boundary was passed, so that runs may start.", nil, nil)
)

func (gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runsDesc, limitDesc, cellsDesc, boundaryDesc} {
		to <- d
	}
}

func (s gauges) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	running, waiting := s.queue.Count()
	gauge(runsDesc, running, api.StateRunning)
	gauge(runsDesc, waiting, api.StateQueued)
	gauge(limitDesc, s.cfg.MaxRuns, api.StateRunning)
	gauge(limitDesc, s.cfg.Queue, api.StateQueued)
	if ready, lent, counted := s.cells(); counted {
		gauge(cellsDesc, ready, "ready")
		gauge(cellsDesc, lent, "lent")
	}
	holds := 0
	if s.unproven() == "" {
		holds = 1
	}
	gauge(boundaryDesc, holds)
}

// cells counts the cells of all backends, as far as any of them are counted.
func (d *Dispatcher) cells() (ready, lent int, counted bool) {
	for _, b := range d.backends.All() {
		if c, ok := b.Cells.(CellCounter); ok {
			r, l := c.Count()
			ready, lent, counted = ready+r, lent+l, true
		}
	}
	return ready, lent, counted
}

// Metrics are what the dispatcher counts.
func (d *Dispatcher) Metrics() prometheus.Gatherer { return d.metrics.registry }
