package queue_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor/queue"
)

// A world runs jobs through a queue by a clock of its own, and checks after each step what
// must hold at all times.
type world struct {
	t       testing.TB
	q       *queue.Queue
	limits  queue.Limits
	now     time.Duration
	running ends
	waiting []*job
	held    map[string]time.Duration // places, by tenant
	began   map[string]int
	longest map[string]time.Duration // that a job of the tenant waited
}

type job struct {
	queue.Job
	ticket         *queue.Ticket
	takes          time.Duration
	arrived, begun time.Duration
}

// ends are jobs that run, by when they end.
type ends []*job

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].begun+e[i].takes < e[j].begun+e[j].takes }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(*job)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newWorld(t testing.TB, limits queue.Limits) *world {
	return &world{
		t: t, q: queue.New(limits, 1000, limits.Running), limits: limits,
		held: map[string]time.Duration{}, began: map[string]int{}, longest: map[string]time.Duration{},
	}
}

// arrive admits a job, and reports whether there was room.
func (w *world) arrive(j queue.Job, takes time.Duration) bool {
	ticket, refusal := w.q.Admit(j)
	if refusal != nil {
		return false
	}
	w.waiting = append(w.waiting, &job{Job: j, ticket: ticket, takes: takes, arrived: w.now})
	w.look()
	return true
}

// end ends the job that ends first.
func (w *world) end() {
	j := heap.Pop(&w.running).(*job)
	w.now = j.begun + j.takes
	w.held[j.Tenant] += j.takes
	j.ticket.Leave(j.takes)
	w.look()
}

// leave has a job that waits go.
func (w *world) leave(i int) {
	w.waiting[i].ticket.Leave(0)
	w.waiting = slices.Delete(w.waiting, i, i+1)
	w.look()
}

// look finds what has begun and checks the bounds: no cap is exceeded, no place stays free
// that somebody may have, no user id is lent twice.
func (w *world) look() {
	w.t.Helper()
	w.waiting = slices.DeleteFunc(w.waiting, func(j *job) bool {
		select {
		case <-j.ticket.Begun():
			j.begun = w.now
			w.began[j.Tenant]++
			w.longest[j.Tenant] = max(w.longest[j.Tenant], w.now-j.arrived)
			heap.Push(&w.running, j)
			return true
		default:
			return false
		}
	})
	tenants, modules, users := map[string]int{}, map[string]int{}, map[int]bool{}
	for _, j := range w.running {
		tenants[j.Tenant]++
		modules[j.Module]++
		user, lent := j.ticket.User()
		if !lent || users[user] {
			w.t.Fatalf("%s has the user %d, lent %t, of another: %t", j.ID, user, lent, users[user])
		}
		users[user] = true
		if j.Quota != nil && tenants[j.Tenant] > j.Quota.Running {
			w.t.Fatalf("%d of %s run, which may have %d", tenants[j.Tenant], j.Tenant, j.Quota.Running)
		}
		if j.Module != "" && w.limits.Module > 0 && modules[j.Module] > w.limits.Module {
			w.t.Fatalf("%d of the module %s run", modules[j.Module], j.Module)
		}
	}
	if len(w.running) > w.limits.Running {
		w.t.Fatalf("%d run", len(w.running))
	}
	if len(w.running) == w.limits.Running {
		return
	}
	for _, j := range w.waiting {
		if (j.Quota == nil || tenants[j.Tenant] < j.Quota.Running) && (j.Module == "" || w.limits.Module <= 0 || modules[j.Module] < w.limits.Module) {
			w.t.Fatalf("%s waits beside a free place: %d of %d run", j.ID, len(w.running), w.limits.Running)
		}
	}
}

// TestBounds has jobs of all kinds come, go and give up at random: what look checks holds
// after each step, and at the end nothing is left.
func TestBounds(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, queue.Limits{Running: 1 + r.IntN(6), Module: r.IntN(3), Waiting: r.IntN(40)})
		quotas := map[string]*queue.Quota{"a": nil, "b": {Running: 1, Waiting: 100}, "c": {Running: 2, Waiting: 100}}
		for n := range 400 {
			switch x := r.IntN(10); {
			case x < 5:
				tenant := []string{"a", "b", "c"}[r.IntN(3)]
				w.arrive(queue.Job{
					ID: fmt.Sprint(n), Tenant: tenant, Weight: 1 + r.IntN(3), Quota: quotas[tenant],
					Module: []string{"", "m", "n"}[r.IntN(3)], Priority: r.IntN(4),
				}, time.Duration(r.IntN(100))*time.Second)
			case x < 9 && len(w.running) > 0:
				w.end()
			case len(w.waiting) > 0:
				w.leave(r.IntN(len(w.waiting)))
			}
		}
		for len(w.running) > 0 {
			w.end()
		}
		if len(w.waiting) > 0 {
			t.Fatalf("seed %d: %d wait for nobody", seed, len(w.waiting))
		}
		if running, waiting := w.q.Count(); running != 0 || waiting != 0 {
			t.Fatalf("seed %d: %d run and %d wait at the end", seed, running, waiting)
		}
	}
}

// TestWeights keeps three tenants' jobs waiting all the time, of lengths and numbers as
// unequal as they come: each has its part of the places' time, within a tenth.
func TestWeights(t *testing.T) {
	weights := map[string]int{"small": 1, "middle": 2, "large": 4}
	lengths := map[string]func(r *rand.Rand) time.Duration{
		"small":  func(*rand.Rand) time.Duration { return time.Second },
		"middle": func(r *rand.Rand) time.Duration { return time.Duration(1+r.IntN(300)) * time.Second },
		"large":  func(*rand.Rand) time.Duration { return 40 * time.Second },
	}
	waits := map[string]int{"small": 60, "middle": 5, "large": 8}
	for _, places := range []int{1, 2, 4, 16} {
		r := rand.New(rand.NewPCG(uint64(places), 2))
		w := newWorld(t, queue.Limits{Running: places, Waiting: 1000})
		const begins = 20_000
		for n := 0; w.began["small"]+w.began["middle"]+w.began["large"] < begins; n++ {
			count := map[string]int{}
			for _, j := range w.waiting {
				count[j.Tenant]++
			}
			for _, tenant := range []string{"small", "middle", "large"} {
				for range waits[tenant] - count[tenant] {
					w.arrive(queue.Job{ID: tenant, Tenant: tenant, Weight: weights[tenant], Priority: r.IntN(2)}, lengths[tenant](r))
				}
			}
			w.end()
		}
		all := w.held["small"] + w.held["middle"] + w.held["large"]
		for tenant, weight := range weights {
			got, want := float64(w.held[tenant])/float64(all), float64(weight)/7
			if got < .9*want || got > 1.1*want {
				t.Errorf("%d places: %s has %.3f of them, want %.3f", places, tenant, got, want)
			}
		}
	}
}

// TestNoSavings has a tenant that was away for long come back: it has its part from then
// on, and no more for what it did not use; nor is a debt forgiven to who goes for a moment.
func TestNoSavings(t *testing.T) {
	w := newWorld(t, queue.Limits{Running: 1, Waiting: 1000})
	fill := func(tenants ...string) {
		for _, tenant := range tenants {
			for len(w.waiting) < 3 {
				w.arrive(queue.Job{ID: tenant, Tenant: tenant, Weight: 3}, 10*time.Second)
			}
		}
	}
	for range 500 {
		fill("here")
		w.end()
	}
	before := w.began["here"]
	for range 100 {
		fill("here")
		if !slices.ContainsFunc(slices.Concat(w.waiting, w.running), func(j *job) bool { return j.Tenant == "away" }) {
			w.arrive(queue.Job{ID: "away", Tenant: "away"}, 10*time.Second)
		}
		w.end()
	}
	if here := w.began["here"] - before; here < 65 {
		t.Errorf("of 100 places %d were given to who was there, want three of four", here)
	}

	// One job at a time that takes all day, beside short ones.
	w = newWorld(t, queue.Limits{Running: 1, Waiting: 1000})
	for range 2000 {
		fill("short")
		if !slices.ContainsFunc(slices.Concat(w.waiting, w.running), func(j *job) bool { return j.Tenant == "long" }) {
			w.arrive(queue.Job{ID: "long", Tenant: "long"}, time.Hour)
		}
		w.end()
	}
	if short, long := w.held["short"], w.held["long"]; long > short+2*time.Hour {
		t.Errorf("the long one held the place for %v, the short ones for %v", long, short)
	}
}

// TestPriorities: of a tenant's own jobs the higher ones go first, and the lowest all the
// same.
func TestPriorities(t *testing.T) {
	w := newWorld(t, queue.Limits{Running: 2, Waiting: 1000})
	began := map[int]int{}
	for range 5000 {
		count := [4]int{}
		for _, j := range w.waiting {
			count[j.Priority]++
		}
		for priority, n := range count {
			for range 3 - n {
				w.arrive(queue.Job{ID: fmt.Sprint(priority), Priority: priority}, 10*time.Second)
			}
		}
		next := w.running[0]
		for _, j := range w.running {
			if j.begun+j.takes < next.begun+next.takes {
				next = j
			}
		}
		began[next.Priority]++
		w.end()
	}
	for priority := range 3 {
		if low, high := began[priority], began[priority+1]; low == 0 || high < 3*low || high > 5*low {
			t.Errorf("priority %d began %d times, %d %d times", priority, low, priority+1, high)
		}
	}
	// One that comes late goes first.
	w = newWorld(t, queue.Limits{Running: 1, Waiting: 10})
	for _, j := range []queue.Job{{ID: "runs"}, {ID: "low"}, {ID: "high", Priority: 3}} {
		w.arrive(j, time.Second)
	}
	if w.end(); w.running[0].ID != "high" {
		t.Errorf("%s goes first", w.running[0].ID)
	}
}

// TestHeadOfLine: who is held back by a bound of its own holds nobody else back.
func TestHeadOfLine(t *testing.T) {
	w := newWorld(t, queue.Limits{Running: 3, Module: 1, Waiting: 10})
	one := &queue.Quota{Running: 1, Waiting: 5}
	for _, j := range []queue.Job{
		{ID: "a1", Tenant: "a", Quota: one}, {ID: "a2", Tenant: "a", Quota: one}, {ID: "b1", Tenant: "b", Module: "m"},
		{ID: "b2", Tenant: "b", Module: "m", Priority: 3}, {ID: "b3", Tenant: "b"},
	} {
		w.arrive(j, time.Second)
	}
	var ids []string
	for _, j := range w.running {
		ids = append(ids, j.ID)
	}
	slices.Sort(ids)
	if got := strings.Join(ids, " "); got != "a1 b1 b3" {
		t.Errorf("%s run", got)
	}
}

// TestPlace: who waits is told how many come first, and about how long that takes.
func TestPlace(t *testing.T) {
	w := newWorld(t, queue.Limits{Running: 2, Waiting: 100})
	for range 200 { // by which it is known how long they take
		w.arrive(queue.Job{ID: "before", Tenant: "a"}, 10*time.Second)
		w.arrive(queue.Job{ID: "before", Tenant: "b"}, 10*time.Second)
		w.end()
		w.end()
	}
	for i := range 6 {
		w.arrive(queue.Job{ID: fmt.Sprint(i), Tenant: "a"}, 10*time.Second)
	}
	w.arrive(queue.Job{ID: "b", Tenant: "b"}, 10*time.Second)
	slices.SortFunc(w.waiting, func(x, y *job) int { return cmp.Compare(x.ID, y.ID) })
	for _, j := range w.waiting {
		place, waits := j.ticket.Place()
		want := queue.Place{Ahead: 0, Wait: 5 * time.Second}
		if j.ID != "b" { // of those of a the first two run, and b's comes before the others
			n := int(j.ID[0] - '2')
			want = queue.Place{Ahead: n + 1, Wait: 5*time.Second + time.Duration(n+1)*5*time.Second}
		}
		if !waits || place.Ahead != want.Ahead || place.Wait < want.Wait*9/10 || place.Wait > want.Wait*11/10 {
			t.Errorf("%s: %+v, %t, want %+v", j.ID, place, waits, want)
		}
	}
	if place, waits := w.running[0].ticket.Place(); waits {
		t.Errorf("one that runs is told %+v", place)
	}
}

// TestHundredThousand runs 100,000 jobs of 20 tenants that come in bursts: all begin, and
// nobody with few jobs waits behind those of one with many.
func TestHundredThousand(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	w := newWorld(t, queue.Limits{Running: 32, Module: 8, Waiting: 400})
	refused := 0
	for n := 0; n < 100_000; {
		// One tenant asks for ten times what there is, the others for little.
		tenant, burst := "greedy", 30
		if r.IntN(4) == 0 {
			tenant, burst = fmt.Sprintf("t%d", r.IntN(19)), 1+r.IntN(3)
		}
		quota := &queue.Quota{Running: 32, Waiting: 200}
		for range burst {
			n++
			if !w.arrive(queue.Job{ID: fmt.Sprint(n), Tenant: tenant, Quota: quota, Module: fmt.Sprint(n % 7), Priority: n % 3}, time.Duration(1+r.IntN(60))*time.Second) {
				if refused++; tenant != "greedy" {
					t.Fatalf("a job of %s is refused for those of another", tenant)
				}
			}
		}
		for range 4 {
			if len(w.running) > 0 {
				w.end()
			}
		}
	}
	for len(w.running) > 0 {
		w.end()
	}
	began, longest := 0, time.Duration(0)
	for tenant, n := range w.began {
		if began += n; tenant != "greedy" {
			longest = max(longest, w.longest[tenant])
		}
	}
	if began+refused < 100_000 || len(w.waiting) > 0 {
		t.Errorf("%d began, %d were refused, %d still wait", began, refused, len(w.waiting))
	}
	if greedy := w.longest["greedy"]; longest > greedy/2 {
		t.Errorf("jobs of tenants with few waited for %v, those of the one with many for %v", longest, greedy)
	}
}
