package decisionlog

import (
	"testing"
	"testing/synctest"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// Each cause has lines of its own, what reaches a host has one each, and nothing is
// lost at the end.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared []account.Record
		s := Limit{Put: func(r account.Record) { shared = append(shared, r) }}
		deny := func(kind account.Kind, reason firewall.Reason, n int) []account.Record {
			list := make([]account.Record, n)
			for i := range list {
				list[i] = account.Record{Kind: kind, Verdict: firewall.Deny, Reason: reason, Line: i}
			}
			return list
		}
		const many = 10 * LineBurst
		flood := deny(account.KindTLS, firewall.ReasonBadHello, many)
		allowed := account.Record{Kind: account.KindTLS, Verdict: firewall.Allow, Reason: firewall.ReasonListed}
		cut := account.Record{Kind: account.KindTLS, Verdict: firewall.Deny, Reason: firewall.ReasonBudget, BytesUp: 1}
		tallied := account.Record{Kind: account.KindTLS, Verdict: firewall.Deny, Reason: firewall.ReasonBadHello, Count: 9}
		for i := range many / 4 {
			flood[4*i], flood[4*i+1], flood[4*i+2] = allowed, cut, tallied
		}
		passed := s.Pass(flood)
		if want := many/4*3 + LineBurst; len(passed) != want {
			t.Fatalf("%d lines, want %d", len(passed), want)
		}
		if passed[2].Count != 9 || passed[3].Line != 3 || passed[4].Reason != firewall.ReasonListed {
			t.Errorf("not in their order: %+v", passed[:5])
		}
		for _, other := range []struct {
			kind   account.Kind
			reason firewall.Reason
		}{{account.KindTLS, firewall.ReasonNoSNI}, {account.KindHTTP, firewall.ReasonBadHello}} {
			if n := len(s.Pass(deny(other.kind, other.reason, 1))); n != 1 {
				t.Errorf("no line of %+v", other)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(s.Pass(deny(account.KindTLS, firewall.ReasonBadHello, many))); n != 2*LineRate {
			t.Errorf("%d lines after two seconds, want %d", n, 2*LineRate)
		}
		page := account.Record{Kind: account.KindHTTP, Verdict: firewall.Allow, Reason: firewall.ReasonPolicyPage}
		for range 2 * LineBurst {
			s.Pass([]account.Record{page})
		}
		s.End()
		sum := map[firewall.Verdict]int64{}
		for _, r := range shared {
			sum[r.Verdict] += max(r.Count, 1)
		}
		if sum[firewall.Deny] != many/4-LineBurst+many-2*LineRate || sum[firewall.Allow] != LineBurst || len(shared) > 8 {
			t.Errorf("%v in %d shared lines: %+v", sum, len(shared), shared)
		}
	})
}
