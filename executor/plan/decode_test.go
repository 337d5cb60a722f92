package plan_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/plan"
)

func TestDecode(t *testing.T) {
	req, problem := plan.Decode([]byte(` {"prompt": "p", "config": {"model": "a/b", "services": {"a": 1}, "argv": ["x"]}, "opts": {"taskId": "t"}}` + "\n"))
	if problem != nil {
		t.Fatal(problem)
	}
	want := api.Request{
		Prompt: "p",
		Config: api.Config{Model: "a/b", Services: json.RawMessage(`{"a": 1}`), Argv: []string{"x"}},
		Opts:   api.Options{TaskID: "t"},
	}
	if !reflect.DeepEqual(req, want) {
		t.Errorf("request = %+v", req)
	}
	// A name twice is refused inside what is passed on as well.
	if _, problem := plan.Decode([]byte(`{"prompt":"p","config":{"services":{"a":1,"a":2}}}`)); problem == nil || problem.Details["field"] != "config.services.a" {
		t.Errorf("problem = %+v", problem)
	}
}

// FuzzDecode checks that what is taken means the same when it is written again,
// and that what is not taken is refused with a problem that is one.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"prompt":"p"}`, `{"prompt":"p","config":{"argv":["a"],"timeoutMs":5}}`, `{"prompt":"p","prompt":"q"}`,
		`{"PROMPT":"p"}`, `[]`, `null`, `{"opts":{"githubAccess":{"a":[1,{"b":null}]}}}`, `{"prompt":"p"} x`, "{\"prompt\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, problem := plan.Decode(body)
		if problem != nil {
			if problem.Status != 400 || problem.Detail == "" || problem.Code != api.CodeInvalidRequest {
				t.Fatalf("problem = %+v", problem)
			}
			return
		}
		again, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		same, problem := plan.Decode(again)
		if problem != nil {
			t.Fatalf("%s was taken, not %s: %v", body, again, problem)
		}
		twice, err := json.Marshal(same)
		if err != nil || string(twice) != string(again) {
			t.Fatalf("%s and %s, %v", again, twice, err)
		}
	})
}
