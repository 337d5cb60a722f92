package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
)

// TestSettingsAreDocumented holds docs/operating.md against the settings of gate
// and executor: each has a row with its default, and no row is about anything that
// the repository does not read.
func TestSettingsAreDocumented(t *testing.T) {
	doc := read(t, "docs/operating.md")
	for dir, heading := range map[string]string{"gate/settings": "Settings of the gate", "cmd/executor": "Settings of the executor"} {
		rows := table(t, section(t, doc, heading))
		settings := settingsOf(t, dir)
		if len(settings) < 3 {
			t.Fatalf("%s has only the settings %v", dir, settings)
		}
		for name, value := range settings {
			row, ok := rows["SALLYPORT_"+name]
			switch {
			case !ok:
				t.Errorf("docs/operating.md, %q: SALLYPORT_%s has no row", heading, name)
			case value != "" && row[1] != "`"+value+"`":
				t.Errorf("docs/operating.md: the default of SALLYPORT_%s is %s, it should be `%s`", name, row[1], value)
			}
		}
		for name := range rows {
			if _, ok := settings[strings.TrimPrefix(name, "SALLYPORT_")]; !ok {
				t.Errorf("docs/operating.md, %q: there is no setting %s", heading, name)
			}
		}
	}
	known := variables(t)
	for _, path := range documents(t) {
		for _, name := range variable.FindAllString(read(t, path), -1) {
			if !known[name] {
				t.Errorf("%s names %s, which nothing reads", path, name)
			}
		}
	}
}

// TestStackPassesSettings wants that compose.yaml passes on each documented setting
// of gate and executor, by its name and so with the code's own default, but for
// those that docs/operating.md says the stack sets itself.
func TestStackPassesSettings(t *testing.T) {
	var stack struct {
		Services map[string]struct {
			Environment map[string]*string `yaml:"environment"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "compose/compose.yaml")), &stack); err != nil {
		t.Fatal(err)
	}
	doc := read(t, "docs/operating.md")
	_, own, _ := strings.Cut(section(t, doc, "Settings of the stack"), "These it sets itself")
	own, _, _ = strings.Cut(own, "An empty value")
	ours := variable.FindAllString(own, -1)
	if len(ours) < 5 {
		t.Fatalf("the stack sets only %v itself", ours)
	}
	for service, heading := range map[string]string{"gate": "Settings of the gate", "executor": "Settings of the executor"} {
		rows := table(t, section(t, doc, heading))
		environment := stack.Services[service].Environment
		for name := range rows {
			value, named := environment[name]
			passed := named && (value == nil || strings.Contains(*value, "${"+name))
			if passed == slices.Contains(ours, name) {
				t.Errorf("%s: compose.yaml passes it on to the %s: %t; the stack sets it itself: %t", name, service, passed, slices.Contains(ours, name))
			}
		}
		for name := range environment {
			if _, known := rows[name]; !known && strings.HasPrefix(name, "SALLYPORT_") {
				t.Errorf("compose.yaml sets %s for the %s, which has no such setting", name, service)
			}
		}
	}
}

// TestReasonsAreDocumented holds docs/allowlist.md against the reasons.
func TestReasonsAreDocumented(t *testing.T) {
	rows := table(t, section(t, read(t, "docs/allowlist.md"), "Reasons"))
	same(t, "docs/allowlist.md, reasons", rows, constants(t, "firewall", "Reason"))
	for reason, row := range rows {
		allows := slices.Contains([]firewall.Reason{firewall.ReasonListed, firewall.ReasonOpen, firewall.ReasonPolicyPage}, firewall.Reason(reason))
		if (row[1] == string(firewall.Allow)) != allows {
			t.Errorf("docs/allowlist.md: %s goes with %q", reason, row[1])
		}
	}
}

// TestAPIIsDocumented holds docs/api.md against the API's types and routes.
func TestAPIIsDocumented(t *testing.T) {
	doc := read(t, "docs/api.md")
	same(t, "docs/api.md, codes", table(t, section(t, doc, "Failures")), constants(t, "executor/api", "Code"))
	same(t, "docs/api.md, events", table(t, section(t, doc, "Events")), constants(t, "executor/api", "EventType"))
	given := used(t, "executor/api", "Code")
	for code, row := range table(t, section(t, doc, "Failures")) {
		if later := strings.Contains(row[2], "kept for later"); later == given[code] {
			t.Errorf("docs/api.md: %s is kept for later: %t; the code gives it: %t", code, later, given[code])
		}
	}

	var fields []string
	fields = append(fields, jsonNames("config.", reflect.TypeFor[api.Config]())...)
	fields = append(fields, jsonNames("opts.", reflect.TypeFor[api.Options]())...)
	same(t, "docs/api.md, request", table(t, section(t, doc, "The request")), append(fields, "prompt"))
	members := table(t, section(t, doc, "The result"))
	members["outputTruncated"] = nil // beside output
	same(t, "docs/api.md, result", members, jsonNames("", reflect.TypeFor[api.Result]()))

	var routes []string
	var openAPI struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(api.OpenAPI, &openAPI); err != nil {
		t.Fatal(err)
	}
	for path, operations := range openAPI.Paths {
		for method := range operations {
			if method != "parameters" {
				routes = append(routes, strings.ToUpper(method)+" "+path)
			}
		}
	}
	same(t, "docs/api.md, routes", table(t, section(t, doc, "Routes")), routes)
}

// TestAPIExamples decodes the examples of docs/api.md strictly.
func TestAPIExamples(t *testing.T) {
	doc := read(t, "docs/api.md")
	var shown []string
	for line := range strings.Lines(only(t, doc, "ndjson")) {
		var ev api.Event
		decode(t, line, &ev)
		if ev.Seq == 0 || ev.Time.IsZero() {
			t.Errorf("docs/api.md: an event without seq or time: %s", line)
		}
		shown = append(shown, string(ev.Type))
	}
	shown = append(shown, string(api.EventResult)) // it has an example of its own
	same(t, "docs/api.md, examples of events", asRows(shown), constants(t, "executor/api", "EventType"))
	decode(t, only(t, doc, "json"), new(api.Result))
	decode(t, only(t, doc, "json capabilities"), new(api.Capabilities))
	decode(t, only(t, doc, "json list"), new(api.ExecutionList))

	var line map[string]any
	decode(t, only(t, read(t, "docs/operating.md"), "json decision"), &line)
	rows := table(t, section(t, read(t, "docs/operating.md"), "Logs"))
	for _, key := range jsonNames("", reflect.TypeFor[account.Record]()) {
		if _, ok := rows[key]; !ok {
			t.Errorf("docs/operating.md: the key %s of a decision has no row", key)
		}
	}
	for key := range line {
		if _, ok := rows[key]; !ok && key != "level" && key != "msg" {
			t.Errorf("docs/operating.md: the example has the key %s, which has no row", key)
		}
	}
}

// TestAllowlistExamples parses the allowlists of docs/allowlist.md: whole files
// must be right, and the bad one must have the faults that are shown.
func TestAllowlistExamples(t *testing.T) {
	doc := read(t, "docs/allowlist.md")
	right := blocks(doc)["yaml"]
	if len(right) < 3 {
		t.Fatalf("docs/allowlist.md has only %d examples", len(right))
	}
	for _, text := range right {
		if _, err := allowlist.Parse(strings.NewReader(text), "docs/allowlist.md"); err != nil {
			t.Errorf("an example is not right: %v\n%s", err, text)
		}
	}
	_, err := allowlist.Parse(strings.NewReader(only(t, doc, "yaml bad.yaml")), "bad.yaml")
	if err == nil {
		t.Fatal("the bad example is right")
	}
	if want := strings.TrimSpace(only(t, doc, "text bad.yaml")); err.Error() != want {
		t.Errorf("the bad example gives\n%v\nand the document says\n%s", err, want)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	unslug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks follows every link to a file or to a heading.
func TestLinks(t *testing.T) {
	found := 0
	for _, path := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, path), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			found++
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link %s leads nowhere", path, m[1])
			} else if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s: %s has no heading for the link %s", path, file, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d links were found", found)
	}
}

// anchors are the names by which the headings of a document are linked to.
func anchors(doc string) []string {
	var names []string
	for _, m := range heading.FindAllStringSubmatch(doc, -1) {
		name := unslug.ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

var makeTarget = regexp.MustCompile("(?m)(?:^ {4}(?:.*&& )?|`)(?:[A-Z_]+=\\S+ )?make ([a-z-]+)")

// TestMakeTargets wants that every target which a document tells to make exists.
func TestMakeTargets(t *testing.T) {
	makefile := read(t, "Makefile")
	found := 0
	for _, path := range documents(t) {
		for _, m := range makeTarget.FindAllStringSubmatch(read(t, path), -1) {
			found++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", path, m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d targets were found", found)
	}
}

var (
	metricRow  = regexp.MustCompile("(?m)^\\| `(sallyport_[a-z_]+)` \\|")
	metricName = regexp.MustCompile(`sallyport_[a-z_]+`)
	suffixed   = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// TestDashboard wants that docs/grafana-dashboard.json asks for every metric that
// docs/operating.md tells of, which the daemons' own tests hold to what there is,
// and for no other.
func TestDashboard(t *testing.T) {
	told := map[string]bool{}
	for _, m := range metricRow.FindAllStringSubmatch(read(t, "docs/operating.md"), -1) {
		told[m[1]] = true
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, "docs/grafana-dashboard.json")), &dashboard); err != nil || len(dashboard.Panels) < 8 || len(told) < 8 {
		t.Fatalf("%d panels and %d metrics, %v", len(dashboard.Panels), len(told), err)
	}
	shown := map[string]bool{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				if !told[name] {
					name = suffixed.ReplaceAllString(name, "")
				}
				shown[name] = true
				if !told[name] {
					t.Errorf("the dashboard asks for %s", name)
				}
			}
		}
	}
	for name := range told {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
