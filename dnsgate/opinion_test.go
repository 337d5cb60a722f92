package dnsgate

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// An opinion is what dnsmessage, which shares no code with the library that the
// gate reads and writes with, makes of a message.
type opinion struct {
	header    dnsmessage.Header
	questions []dnsmessage.Question
	answers   []dnsmessage.Resource
	additions []dnsmessage.Resource
}

func opinionOf(msg []byte) (o opinion, err error) {
	var p dnsmessage.Parser
	if o.header, err = p.Start(msg); err != nil {
		return o, err
	}
	if o.questions, err = p.AllQuestions(); err != nil {
		return o, err
	}
	if o.answers, err = p.AllAnswers(); err != nil {
		return o, err
	}
	if err = p.SkipAllAuthorities(); err != nil {
		return o, err
	}
	o.additions, err = p.AllAdditionals()
	return o, err
}

// checkOpinion wants that a second reader finds the reply well-formed, to the very
// question that it finds in the query, and an address in it only where the record
// says that just this name is allowed.
func checkOpinion(t *testing.T, msg, reply []byte, r account.Record) {
	t.Helper()
	got, err := opinionOf(reply)
	asked := questionOf(msg)
	if err != nil && asked == nil && r.Verdict == firewall.Deny {
		return // it reads no name with a dot inside a label, which is what we have to echo
	}
	if err != nil || !got.header.Response || len(got.questions) > 1 || len(got.answers) > 1 {
		t.Fatalf("dnsmessage reads the reply as %+v: %v", got, err)
	}
	if asked == nil {
		if r.Verdict == firewall.Allow {
			t.Fatalf("dnsmessage finds no question where %s is allowed", r.Host)
		}
		return
	}
	if len(got.questions) == 1 && got.questions[0] != *asked {
		t.Fatalf("the question is %+v, the reply's %+v", asked, got.questions[0])
	}
	wanted := 0
	if r.Verdict == firewall.Allow {
		if host := strings.ToLower(strings.TrimSuffix(asked.Name.String(), ".")); host != r.Host || asked.Class != dnsmessage.ClassINET {
			t.Fatalf("%s is allowed, dnsmessage reads %+v", r.Host, asked)
		}
		if asked.Type == dnsmessage.TypeA {
			wanted = 1
		}
	}
	if len(got.answers) != wanted {
		t.Fatalf("%d answers to %+v with record %+v", len(got.answers), asked, r)
	}
	for _, a := range got.answers {
		if body, ok := a.Body.(*dnsmessage.AResource); !ok || body.A != answerAddr.As4() || a.Header.Name != asked.Name {
			t.Fatalf("answer %+v", a)
		}
	}
	if query, err := opinionOf(msg); err == nil && len(query.answers) == 0 && len(got.questions) == 1 && got.header.RCode != dnsmessage.RCodeFormatError {
		hasOPT := slices.ContainsFunc(query.additions, func(a dnsmessage.Resource) bool { return a.Header.Type == dnsmessage.TypeOPT })
		if hasOPT != (len(got.additions) == 1) {
			t.Fatalf("additions %+v to those of the query, %+v", got.additions, query.additions)
		}
	}
	for _, a := range got.additions {
		if a.Header.Type != dnsmessage.TypeOPT || a.Header.Class != maxReply {
			t.Fatalf("additional %+v", a)
		}
	}
}

// questionOf is the only question of a message; nil if dnsmessage finds none or
// several.
func questionOf(msg []byte) *dnsmessage.Question {
	var p dnsmessage.Parser
	if _, err := p.Start(msg); err != nil {
		return nil
	}
	if questions, err := p.AllQuestions(); err == nil && len(questions) == 1 {
		return &questions[0]
	}
	return nil
}

// FuzzOpinion answers queries that are mostly well-formed: whatever name, type and
// class somebody asks for, two readers agree on what was asked and what was said.
//
// probe: D4, D5, D6, D7, D10, D13, D14, D16
// oracle: dnsmessage, which reads query and reply with none of the code that the
// gate uses.
func FuzzOpinion(f *testing.F) {
	for _, name := range []string{"allowed.example", "A.tree.EXAMPLE", "other.example", "data.tree.example", "xn--mnchen-3ya.tree.example", ""} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeHTTPS, dns.TypeANY} {
			f.Add(name, qtype, uint16(dns.ClassINET), uint16(0), []byte(nil))
		}
	}
	w, last := newTestAnswerer(f, "strict")
	f.Fuzz(func(t *testing.T, name string, qtype, class, size uint16, extra []byte) {
		msg, ok := wireQuery(name, qtype, class, size, extra)
		if !ok {
			return
		}
		*last = account.Record{}
		reply := w.answer(msg, fuzzClient)
		checkRecord(t, *last)
		if reply == nil {
			t.Fatal("no reply to a query")
		}
		checkReply(t, msg, reply[2:], *last)
		checkOpinion(t, msg, reply[2:], *last)
	})
}

// wireQuery is a query for the labels of name, whatever bytes they have; size, if not
// 0, is that of an OPT with the options of extra.
func wireQuery(name string, qtype, class, size uint16, extra []byte) (msg []byte, ok bool) {
	if len(name) > 250 || len(extra) > 500 {
		return nil, false
	}
	msg = []byte{7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		if name == "" {
			break
		}
		if label == "" || len(label) > 63 {
			return nil, false
		}
		msg = append(append(msg, byte(len(label))), label...)
	}
	msg = append(msg, 0, byte(qtype>>8), byte(qtype), byte(class>>8), byte(class))
	if size > 0 {
		msg[11] = 1
		msg = append(msg, 0, 0, byte(dns.TypeOPT), byte(size>>8), byte(size), 0, 0, 0, 0, byte(len(extra)>>8), byte(len(extra)))
		msg = append(msg, extra...)
	}
	return msg, true
}

// The second reader sees what it is asked for.
func TestOpinion(t *testing.T) {
	w, last := newTestAnswerer(t, "strict")
	msg, _ := wireQuery("A.tree.EXAMPLE", dns.TypeA, dns.ClassINET, 4096, []byte{0, 10, 0, 2, 1, 2})
	reply := w.answer(msg, fuzzClient)
	got, err := opinionOf(reply[2:])
	if err != nil || len(got.answers) != 1 || len(got.additions) != 1 || got.questions[0].Name.String() != "A.tree.EXAMPLE." || last.Host != "a.tree.example" {
		t.Errorf("%+v, %v; record %+v", got, err, last)
	}
	checkOpinion(t, msg, reply[2:], *last)
}
