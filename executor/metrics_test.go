package executor_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A sample is one line of the metrics: name, labels, value.
var sample = regexp.MustCompile(`(?m)^(sallyport_[a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+)$`)

// scrape returns the executor's own metrics: each line's value by its name and
// labels, and the labels of each metric. Of a histogram there is its count.
func scrape(h *harness) (values map[string]float64, labels map[string][]string) {
	h.t.Helper()
	w := httptest.NewRecorder()
	h.executor.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	values, labels = map[string]float64{}, map[string][]string{}
	for _, m := range sample.FindAllStringSubmatch(w.Body.String(), -1) {
		name := strings.TrimSuffix(m[1], "_count")
		if strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum") {
			continue
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			h.t.Fatal(err)
		}
		values[strings.TrimSpace(name+" "+strings.ReplaceAll(strings.ReplaceAll(m[2], `"`, ""), ",", " "))] = v
		labels[name] = []string{}
		for _, l := range regexp.MustCompile(`([a-z]+)="`).FindAllStringSubmatch(m[2], -1) {
			labels[name] = append(labels[name], l[1])
		}
	}
	if len(values) < 8 {
		h.t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return values, labels
}

// TestMetrics counts runs that end well, fail, are refused and go on, and wants no
// label with anything of a single run in it.
func TestMetrics(t *testing.T) {
	h := start(t)
	h.post(of("secret-task", command("echo secret-output")))
	h.post(command("exit 3", `"unrestrictedEgress":true`))
	h.do(http.MethodPost, "/v1/executions", command("true", `"egress":"secret-policy"`))
	id := h.begin(command("echo begun; sleep 60"))
	h.awaitText(id, "begun")
	values, _ := scrape(h)
	for name, want := range map[string]float64{
		"_runs_total agent=command code=ok policy=strict":           1,
		"_runs_total agent=command code=command_failed policy=open": 1,
		"_run_seconds agent=command":                                2,
		"_stage_seconds stage=queue":                                2,
		"_stage_seconds stage=start":                                2,
		"_stage_seconds stage=end":                                  2,
		"_refused_total code=sandbox_policy_denied":                 1,
		"_runs state=running":                                       1,
		"_runs state=queued":                                        0,
		"_runs_limit state=running":                                 2,
		"_runs_limit state=queued":                                  4,
		"_cells state=ready":                                        3,
		"_cells state=lent":                                         1,
		"_boundary_holds":                                           1,
		"_boundary_checks_total outcome=held":                       1,
		"_boundary_checks_total outcome=broken":                     0,
		"_tokens_total agent=command kind=output":                   0,
		"_cost_usd_total agent=command":                             0,
	} {
		if got, ok := values["sallyport_executor"+name]; !ok || got != want {
			t.Errorf("%s is %v (there: %t), want %v", name, got, ok, want)
		}
	}
	for name := range values {
		if strings.Contains(name, "secret") || strings.Contains(name, id) {
			t.Errorf("a label comes from a request: %s", name)
		}
	}
	h.do(http.MethodDelete, "/v1/executions/"+id, "")
	h.finish(id)
	h.boundary.set("host-listener", nil)
	h.do(http.MethodPost, "/v1/boundary/check", "")
	h.boundary.set("", errTest)
	h.later()
	h.do(http.MethodPost, "/v1/boundary/check", "")
	values, _ = scrape(h)
	for name, want := range map[string]float64{
		"_runs_total agent=command code=sandbox_cancelled policy=strict": 1,
		"_runs state=running":                       0,
		"_boundary_holds":                           0,
		"_boundary_checks_total outcome=broken":     1,
		"_boundary_checks_total outcome=failed":     1,
		"_boundary_checks_total outcome=held":       1,
		"_refused_total code=sandbox_policy_denied": 1,
	} {
		if got := values["sallyport_executor"+name]; got != want {
			t.Errorf("in the end %s is %v, want %v", name, got, want)
		}
	}
	if resp, _ := h.do(http.MethodGet, "/metrics", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the API serves /metrics: %s", resp.Status)
	}
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(sallyport_executor_[a-z_]+)` \\| ([^|]*)\\|")
	labelName = regexp.MustCompile("`([a-z]+)`(?: \\([^)]*\\))?")
)

// TestMetricsAreDocumented wants a row of docs/operating.md for each metric, with
// its labels.
func TestMetricsAreDocumented(t *testing.T) {
	h := start(t)
	h.post(command("true"))
	h.do(http.MethodPost, "/v1/executions", command("true", `"egress":"none"`))
	_, have := scrape(h)
	doc, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(string(doc), -1) {
		told[row[1]] = []string{}
		for _, l := range labelName.FindAllStringSubmatch(row[2], -1) {
			told[row[1]] = append(told[row[1]], l[1])
		}
		slices.Sort(told[row[1]])
	}
	for name, labels := range have {
		if !slices.Equal(told[name], labels) || told[name] == nil {
			t.Errorf("%s has the labels %v, and docs/operating.md says %v", name, labels, told[name])
		}
		delete(told, name)
	}
	for name := range told {
		t.Errorf("docs/operating.md tells of %s, which there is not", name)
	}
}
