package approval_test

import (
	"testing"

	"sallyport/executor/api"
)

// BenchmarkRequire is what a run under an approval adds to its admission: its definition, the
// digest of it, and a look for the approval.
func BenchmarkRequire(b *testing.B) {
	k, _ := keeper(b)
	a := require(b, k, subject(b, "x"))
	if _, err := k.Decide(b.Context(), bob, a.ID, api.ApprovalApproved, api.ApprovalDecision{Seq: a.Seq}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		require(b, k, subject(b, "x"))
	}
}
