package queue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor/queue"
)

// A floor follows a queue by the names of its jobs.
type floor struct {
	t       *testing.T
	q       *queue.Queue
	tickets map[string]*queue.Ticket
	order   []string // of arrival
}

func (f *floor) admit(job queue.Job) *queue.Refusal {
	ticket, refusal := f.q.Admit(job)
	if refusal == nil {
		f.tickets[job.ID], f.order = ticket, append(f.order, job.ID)
	}
	return refusal
}

func (f *floor) leave(id string) {
	f.tickets[id].Leave(time.Second)
	f.order = slices.DeleteFunc(f.order, func(s string) bool { return s == id })
}

// running are the jobs that have begun, in the order of their arrival, with their users.
func (f *floor) running() string {
	var list []string
	for _, id := range f.order {
		select {
		case <-f.tickets[id].Begun():
			user, lent := f.tickets[id].User()
			if !lent {
				f.t.Errorf("%s has no user", id)
			}
			list = append(list, fmt.Sprintf("%s:%d", id, user))
		default:
		}
	}
	running, waiting := f.q.Count()
	if running != len(list) || waiting != len(f.order)-len(list) {
		f.t.Errorf("the queue counts %d and %d, %d and %d are there", running, waiting, len(list), len(f.order)-len(list))
	}
	return strings.Join(list, " ")
}

// TestTurns takes jobs through a queue step by step: "+a" admits a, "-a" has it leave.
// Behind each step stand the jobs that run then, with their users.
func TestTurns(t *testing.T) {
	for name, tt := range map[string]struct {
		running, waiting, users int
		steps                   string
	}{
		"first come, first served": {1, 2, 1, "+a a:100; +b a:100; +c a:100; -a b:100; -b c:100; -c"},
		"places are not left free": {2, 2, 2, "+a a:100; +b a:100 b:101; +c a:100 b:101; -b a:100 c:101; -a c:101"},
		"who waits may leave":      {1, 2, 1, "+a a:100; +b a:100; +c a:100; -b a:100; -a c:100"},
		"the lowest user is lent":  {3, 0, 3, "+a a:100; +b a:100 b:101; +c a:100 b:101 c:102; -a b:101 c:102; +d b:101 c:102 d:100"},
		"the last user is shared":  {3, 0, 2, "+a a:100; +b a:100 b:101; +c a:100 b:101 c:101; -b a:100 c:101; +d a:100 c:101 d:101; -a c:101 d:101; +e c:101 d:101 e:100"},
		"one user is shared":       {2, 0, 1, "+a a:100; +b a:100 b:100; -a b:100; +c b:100 c:100"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &floor{t: t, q: queue.New(queue.Limits{Running: tt.running, Waiting: tt.waiting}, 100, tt.users), tickets: map[string]*queue.Ticket{}}
			for step := range strings.SplitSeq(tt.steps, "; ") {
				act, want, _ := strings.Cut(step, " ")
				if id := act[1:]; act[0] == '-' {
					f.leave(id)
				} else if refusal := f.admit(queue.Job{ID: id}); refusal != nil {
					t.Fatalf("%s: refused: %+v", act, refusal)
				}
				if got := f.running(); got != want {
					t.Fatalf("after %s: %q, want %q", act, got, want)
				}
			}
		})
	}
}

// TestRefusals asks for a place beside a job that runs and one that waits.
func TestRefusals(t *testing.T) {
	dirs := func(workspace, sessions, context string) queue.Directories {
		return queue.Directories{Workspace: workspace, Sessions: sessions, Context: context}
	}
	for name, tt := range map[string]struct {
		asked queue.Directories
		want  *queue.Refusal
	}{
		"nothing of the host's":           {dirs("", "", ""), nil},
		"others":                          {dirs("/w/c", "/s/c", "/w/x"), nil},
		"a name that begins the same":     {dirs("/w/ab", "", ""), nil},
		"the same sessions":               {dirs("", "/s/a", ""), nil},
		"the same context":                {dirs("", "", "/x/a"), nil},
		"a workspace that is read there":  {dirs("/x/a", "", ""), nil},
		"the workspace of the first":      {dirs("/w/a", "", ""), &queue.Refusal{Reason: queue.Overlap, Use: queue.Workspace, Holder: "first"}},
		"below it":                        {dirs("/w/a/b", "", ""), &queue.Refusal{Reason: queue.Overlap, Use: queue.Workspace, Holder: "first"}},
		"above both":                      {dirs("/w", "", ""), &queue.Refusal{Reason: queue.Overlap, Use: queue.Workspace, Holder: "first"}},
		"the workspace of one that waits": {dirs("/w/b", "", ""), &queue.Refusal{Reason: queue.Overlap, Use: queue.Workspace, Holder: "second"}},
		"where the first has its log":     {dirs("/s/a", "", ""), &queue.Refusal{Reason: queue.Overlap, Use: queue.Workspace, Holder: "first"}},
		"a log in the workspace":          {dirs("/w/c", "/w/a/s", ""), &queue.Refusal{Reason: queue.Overlap, Use: queue.Sessions, Holder: "first"}},
		"a context in the workspace":      {dirs("", "", "/w/b/docs"), &queue.Refusal{Reason: queue.Overlap, Use: queue.Context, Holder: "second"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := queue.New(queue.Limits{Running: 1, Waiting: 2}, 100, 1)
			admit := func(id string, d queue.Directories) (*queue.Ticket, *queue.Refusal) {
				return q.Admit(queue.Job{ID: id, Directories: d})
			}
			first, _ := admit("first", dirs("/w/a", "/s/a", "/x/a"))
			second, _ := admit("second", dirs("/w/b", "", ""))
			ticket, got := admit("third", tt.asked)
			if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
				t.Fatalf("refusal = %+v, want %+v", got, tt.want)
			}
			first.Leave(time.Second)
			second.Leave(time.Second)
			if tt.want == nil {
				ticket.Leave(time.Second)
			} else if _, got := admit("third", tt.asked); got != nil {
				t.Errorf("control: once they have left: %+v", got)
			}
		})
	}
}

// TestFullAndClosed fills a queue, and closes it.
func TestFullAndClosed(t *testing.T) {
	q := queue.New(queue.Limits{Running: 1, Waiting: 1}, 100, 1)
	a, _ := q.Admit(queue.Job{ID: "a", Directories: queue.Directories{Workspace: "/w"}})
	b, _ := q.Admit(queue.Job{ID: "b"})
	for name, ticket := range map[string]*queue.Ticket{"one with a workspace": a, "one that waits": b} {
		if id, lent := ticket.User(); lent {
			t.Errorf("%s was lent the user %d", name, id)
		}
	}
	if _, refusal := q.Admit(queue.Job{ID: "c"}); refusal == nil || *refusal != (queue.Refusal{Reason: queue.Full, Limit: 2}) {
		t.Errorf("a full queue: %+v", refusal)
	}
	q.Close()
	a.Leave(time.Second)
	a.Leave(time.Second) // counts once
	if _, refusal := q.Admit(queue.Job{ID: "c"}); refusal == nil || *refusal != (queue.Refusal{Reason: queue.Closed}) || !q.Closed() {
		t.Errorf("a closed queue: %+v", refusal)
	}
	select {
	case <-b.Begun():
	default:
		t.Error("what was admitted does not begin in a closed queue")
	}
	if running, waiting := q.Count(); running != 1 || waiting != 0 {
		t.Errorf("%d run, %d wait", running, waiting)
	}
}

// TestQuotas takes jobs of two tenants through a queue, step by step as in TestTurns: the
// first letter of a job is its tenant, and "!a2" says that the job is refused.
func TestQuotas(t *testing.T) {
	for name, tt := range map[string]struct {
		quota queue.Quota // of a
		steps string
	}{
		"one runs, one waits":              {queue.Quota{Running: 1, Waiting: 1}, "+a1 a1; +a2 a1; !a3 a1; -a1 a2; +a3 a2; -a2 a3"},
		"others begin beside who waits":    {queue.Quota{Running: 1, Waiting: 9}, "+a1 a1; +a2 a1; +b1 a1 b1; +b2 a1 b1 b2; -b1 a1 b2; -a1 a2 b2"},
		"who waits longest goes first":     {queue.Quota{Running: 1, Waiting: 9}, "+a1 a1; +a2 a1; +a3 a1; -a1 a2; -a2 a3"},
		"none waits":                       {queue.Quota{Running: 2, Waiting: 0}, "+a1 a1; +a2 a1 a2; !a3 a1 a2; -a1 a2; +a3 a2 a3"},
		"none waits for others either":     {queue.Quota{Running: 2, Waiting: 0}, "+b1 b1; +b2 b1 b2; +b3 b1 b2 b3; !a1 b1 b2 b3; -b2 b1 b3; +a1 b1 b3 a1"},
		"who waits leaves its place":       {queue.Quota{Running: 1, Waiting: 1}, "+a1 a1; +a2 a1; -a2 a1; +a3 a1; !a4 a1; -a1 a3"},
		"places are bounded for all still": {queue.Quota{Running: 9, Waiting: 9}, "+a1 a1; +a2 a1 a2; +a3 a1 a2 a3; +a4 a1 a2 a3; -a1 a2 a3 a4"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &floor{t: t, q: queue.New(queue.Limits{Running: 3, Waiting: 9}, 100, 1), tickets: map[string]*queue.Ticket{}}
			for step := range strings.SplitSeq(tt.steps, "; ") {
				act, want, _ := strings.Cut(step, " ")
				id := act[1:]
				job := queue.Job{ID: id, Tenant: id[:1]}
				if job.Tenant == "a" {
					job.Quota = &tt.quota
				}
				switch act[0] {
				case '-':
					f.leave(id)
				case '+':
					if refusal := f.admit(job); refusal != nil {
						t.Fatalf("%s: refused: %+v", act, refusal)
					}
				case '!':
					if refusal := f.admit(job); refusal == nil || *refusal != (queue.Refusal{Reason: queue.Quotas, Limit: tt.quota.Waiting}) {
						t.Fatalf("%s: %+v", act, refusal)
					}
				}
				if got := strings.ReplaceAll(f.running(), ":100", ""); got != want {
					t.Fatalf("after %s: %q, want %q", act, got, want)
				}
			}
		})
	}
}

// TestRandomQuotas takes tenants with quotas through random steps: no tenant has more
// places than it may, and none of its jobs waits while it has one and a place is free.
func TestRandomQuotas(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		running := 1 + random.IntN(4)
		f := &floor{t: t, q: queue.New(queue.Limits{Running: running, Waiting: 20}, 100, 1), tickets: map[string]*queue.Ticket{}}
		quotas := map[string]*queue.Quota{"a": {Running: 1 + random.IntN(3), Waiting: random.IntN(3)}, "b": {Running: 1, Waiting: 5}, "c": nil}
		for step := range 100 {
			if tenant := string("abc"[random.IntN(3)]); random.IntN(2) == 0 {
				f.admit(queue.Job{ID: tenant + fmt.Sprint(step), Tenant: tenant, Quota: quotas[tenant]})
			} else if len(f.order) > 0 {
				f.leave(f.order[random.IntN(len(f.order))])
			}
			has, begun := map[string]int{}, map[string]bool{}
			for _, job := range strings.Fields(f.running()) {
				id, _, _ := strings.Cut(job, ":")
				has[id[:1]]++
				begun[id] = true
			}
			waits := map[string]int{}
			for _, id := range f.order {
				quota := quotas[id[:1]]
				if !begun[id] && len(begun) < running && (quota == nil || has[id[:1]] < quota.Running) {
					t.Fatalf("%s waits beside a free place: %v run of %d", id, begun, running)
				}
				if !begun[id] {
					waits[id[:1]]++
				}
			}
			for tenant, quota := range quotas {
				if quota != nil && (has[tenant] > quota.Running || waits[tenant] > quota.Waiting) {
					t.Fatalf("%s has %d and %d of %+v", tenant, has[tenant], waits[tenant], quota)
				}
			}
		}
	}
}

// TestRandomTurns takes a queue through random steps: no more jobs run than may, none
// waits beside a free place, they begin in the order of their arrival, and no two have
// the same user but the last.
func TestRandomTurns(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		running, waiting := 1+random.IntN(4), random.IntN(4)
		users := 1 + random.IntN(running)
		f := &floor{t: t, q: queue.New(queue.Limits{Running: running, Waiting: waiting}, 100, users), tickets: map[string]*queue.Ticket{}}
		for step := range 100 {
			if id := fmt.Sprint(step); random.IntN(2) == 0 {
				refused := f.admit(queue.Job{ID: id}) != nil
				if refused != (len(f.order) == running+waiting && f.tickets[id] == nil) {
					t.Fatalf("%d of %d and %d are there, refused: %t", len(f.order), running, waiting, refused)
				}
			} else if len(f.order) > 0 {
				f.leave(f.order[random.IntN(len(f.order))])
			}
			list := strings.Fields(f.running())
			if len(list) != min(running, len(f.order)) {
				t.Fatalf("%d run of %d that are there, %d may", len(list), len(f.order), running)
			}
			lent := map[string]bool{}
			for i, job := range list {
				id, user, _ := strings.Cut(job, ":")
				if id != f.order[i] {
					t.Fatalf("%s runs, and %s came before it", id, f.order[i])
				}
				if lent[user] && user != fmt.Sprint(100+users-1) {
					t.Fatalf("two jobs are user %s: %v", user, list)
				}
				lent[user] = true
			}
		}
	}
}
