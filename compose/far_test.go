package compose_test

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"
)

// A hit is what the demo's internet noted of one arrival.
type hit struct {
	Seq                                int
	Kind, Name, Detail, Auth, From, To string
}

// hits asks the far side what has arrived since the hit number after.
func hits(t *testing.T, after int) []hit {
	t.Helper()
	resp, err := st.web.Get(fmt.Sprintf("http://%s.10:7299/hits?after=%d", lan, after))
	if err != nil {
		t.Fatalf("ask the far side: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var all []hit
	if err := json.Unmarshal(body, &all); err != nil {
		t.Fatalf("the far side answers %.200s: %v", body, err)
	}
	return all
}

// lastHit is the number of the newest hit.
func lastHit(t *testing.T) int {
	all := hits(t, 0)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Seq
}
