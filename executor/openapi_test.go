package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

func loadDocument(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// A checker is a transport that holds every answer against the document.
type checker struct {
	t      testing.TB
	doc    *openapi3.T
	router routers.Router
}

func newChecker(t testing.TB) *checker {
	doc := loadDocument(t)
	doc.Servers = nil // whichever port the test has
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &checker{t, doc, router}
}

func (c *checker) CloseIdleConnections() {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func (c *checker) RoundTrip(req *http.Request) (*http.Response, error) {
	asked := c.refuses(req)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if asked != nil && resp.StatusCode/100 == 2 {
		c.t.Errorf("%s %s answered %s to what the document refuses: %v", req.Method, req.URL.Path, resp.Status, asked)
	}
	kind := resp.Header.Get("Content-Type")
	if kind == "application/x-ndjson" || kind == "text/event-stream" {
		return resp, nil // the events in it are checked by TestEventsMatchTheDocument
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err := c.check(req, resp, body); err != nil {
		c.t.Errorf("%s %s answered %s, against the document: %v\n%.2000s", req.Method, req.URL.Path, resp.Status, err, body)
	}
	return resp, nil
}

// refuses says what the document has against a request, which it leaves as it is; nil
// where that is nothing.
func (c *checker) refuses(req *http.Request) error {
	route, params, err := c.router.FindRoute(documented(req))
	if err != nil {
		return nil // no such route
	}
	asked := req.Clone(req.Context())
	if req.GetBody != nil {
		if asked.Body, err = req.GetBody(); err != nil {
			return err
		}
	}
	return openapi3filter.ValidateRequest(req.Context(), &openapi3filter.RequestValidationInput{
		Request: asked, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	})
}

func (c *checker) check(req *http.Request, resp *http.Response, body []byte) error {
	route, params, err := c.router.FindRoute(documented(req))
	if err != nil { // no such route: still a problem document
		return c.doc.Components.Schemas["Problem"].Value.VisitJSON(mustJSON(body))
	}
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in,
		Status:                 resp.StatusCode,
		Header:                 resp.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
}

// documented is the request with the slashes of an artifact's name encoded, as a
// template's variable is one segment.
func documented(req *http.Request) *http.Request {
	before, name, ok := strings.Cut(req.URL.Path, "/artifacts/")
	if !ok {
		return req
	}
	req = req.Clone(req.Context())
	req.URL.Path = before + "/artifacts/" + strings.ReplaceAll(name, "/", "_")
	req.URL.RawPath = ""
	return req
}

func mustJSON(data []byte) any {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return string(data)
	}
	return v
}

func TestDocumentHasEveryRoute(t *testing.T) {
	doc := loadDocument(t)
	var documented []string
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			route := method + " " + path
			if op.Security != nil && len(*op.Security) == 0 {
				route += " open"
			}
			documented = append(documented, route)
		}
	}
	served := executor.Routes()
	slices.Sort(documented)
	slices.Sort(served)
	if !slices.Equal(documented, served) {
		t.Errorf("documented and served routes differ:\n%s\nand\n%s", strings.Join(documented, "\n"), strings.Join(served, "\n"))
	}
}

// TestDocumentHasEveryField holds the schemas against the types.
func TestDocumentHasEveryField(t *testing.T) {
	doc := loadDocument(t)
	for name, typ := range map[string]reflect.Type{
		"Request": reflect.TypeFor[api.Request](), "Config": reflect.TypeFor[api.Config](), "Options": reflect.TypeFor[api.Options](), "Workflow": reflect.TypeFor[api.Workflow](), "WorkflowInstance": reflect.TypeFor[api.WorkflowInstance](),
		"Error": reflect.TypeFor[api.Error](), "Problem": reflect.TypeFor[api.Problem](), "Execution": reflect.TypeFor[api.Execution](),
		"ExecutionList": reflect.TypeFor[api.ExecutionList](), "ExecutionSummary": reflect.TypeFor[api.ExecutionSummary](), "Outcome": reflect.TypeFor[api.Outcome](),
		"Result": reflect.TypeFor[api.Result](), "Receipt": reflect.TypeFor[account.Receipt](), "ReceiptHost": reflect.TypeFor[account.ReceiptHost](),
		"PolicyChange": reflect.TypeFor[account.PolicyChange](), "VerdictSum": reflect.TypeFor[account.VerdictSum](),
		"GithubAccess": reflect.TypeFor[api.GithubAccess](), "GithubReceipt": reflect.TypeFor[api.GithubReceipt](), "GithubCapability": reflect.TypeFor[api.GithubCapability](),
		"Artifact": reflect.TypeFor[api.Artifact](), "ArtifactList": reflect.TypeFor[api.ArtifactList](), "Timings": reflect.TypeFor[api.Timings](),
		"Isolation": reflect.TypeFor[api.Isolation](), "Event": reflect.TypeFor[api.Event](), "Tool": reflect.TypeFor[api.Tool](),
		"Usage": reflect.TypeFor[api.Usage](), "Decision": reflect.TypeFor[account.Record](), "Capabilities": reflect.TypeFor[api.Capabilities](),
		"Tier": reflect.TypeFor[api.Tier](), "ServiceLimits": reflect.TypeFor[api.ServiceLimits](), "Sandbox": reflect.TypeFor[api.Sandbox](),
		"BoundaryReport": reflect.TypeFor[api.BoundaryReport](), "BoundaryFinding": reflect.TypeFor[api.BoundaryFinding](),
		"Health": reflect.TypeFor[api.Health](), "Readiness": reflect.TypeFor[api.Readiness](), "ReadinessCheck": reflect.TypeFor[api.ReadinessCheck](),
	} {
		ref := doc.Components.Schemas[name]
		if ref == nil {
			t.Errorf("no schema %s", name)
			continue
		}
		var fields, always []string
		for f := range typ.Fields() {
			field, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, field)
			if options == "" {
				always = append(always, field)
			}
		}
		var documented []string
		for p := range ref.Value.Properties {
			documented = append(documented, p)
		}
		required := slices.Clone(ref.Value.Required)
		for _, list := range [][]string{fields, always, documented, required} {
			slices.Sort(list)
		}
		if !slices.Equal(fields, documented) {
			t.Errorf("%s: fields %v, documented %v", name, fields, documented)
		}
		if name != "Request" && !slices.Equal(always, required) { // config and opts may be left out
			t.Errorf("%s: always there %v, required %v", name, always, required)
		}
	}
}

// TestEventsMatchTheDocument holds the events of a command and of what pi has been
// recorded to print against the schema. There is one of each type.
func TestEventsMatchTheDocument(t *testing.T) {
	h := start(t)
	id := h.begin(command(`echo out; echo err >&2; echo "$(cat)"; sleep 1; touch a.txt`, `"artifacts":["*.txt"]`))
	h.awaitText(id, "the prompt")
	h.gate.decide(account.Record{Kind: account.KindTLS, Host: "api.anthropic.com", Port: 443, Verdict: firewall.Allow, Reason: firewall.ReasonListed, Rule: ".anthropic.com", Line: 4})
	h.finish(id)
	ids := []string{id}
	recordings, err := filepath.Glob("agent/testdata/pi/*.jsonl")
	if err != nil || len(recordings) < 10 {
		t.Fatalf("%d recordings, %v", len(recordings), err)
	}
	for _, r := range recordings {
		h.recorded(strings.TrimSuffix(filepath.Base(r), ".jsonl"), "echo nonsense")
		ids = append(ids, h.begin(piRequest))
		h.finish(ids[len(ids)-1])
	}
	schema := loadDocument(t).Components.Schemas["Event"].Value
	types := map[any]bool{}
	for _, id := range ids {
		_, data := h.do(http.MethodGet, "/v1/executions/"+id+"/events", "")
		for line := range bytes.Lines(data) {
			if err := schema.VisitJSON(mustJSON(line)); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			var ev api.Event
			if err := json.Unmarshal(line, &ev); err != nil {
				t.Fatal(err)
			}
			types[string(ev.Type)] = true
		}
	}
	for _, want := range schema.Properties["type"].Value.Enum {
		if !types[want] {
			t.Errorf("no event of type %s came", want)
		}
	}
	if all := schema.Properties["type"].Value.Enum; len(all) != len(types) {
		t.Errorf("the document has %v, there came %v", all, types)
	}
}
