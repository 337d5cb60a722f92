package executor_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/statedir"
)

// The long form is go test ./executor -run '^TestKilled$' -kills 200 -load 50 -timeout 1h.
var (
	kills    = flag.Int("kills", 20, "how often TestKilled kills an executor")
	load     = flag.Int("load", 8, "how many runs TestKilled begins before each kill")
	killSeed = flag.Uint64("kill-seed", 0, "where TestKilled kills; 0 for another place each time")
)

// killedVariable makes TestKilled the executor of the state directory that it names.
const killedVariable = "SALLYPORT_TEST_KILLED"

// TestKilled kills an executor, a process of its own, again and again under a load of runs
// that have keys: while it starts, accepts, runs, records and ends. What was answered stays,
// each key gives one execution, whose command ran at most once, and the audit log verifies.
//
// oracle: a line that each command writes to a file of its own
func TestKilled(t *testing.T) {
	if dir := os.Getenv(killedVariable); dir != "" {
		serveUntilKilled(t, dir)
		return
	}
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kill-seed %d", seed)
	k := &killing{t: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, seed)), given: map[string]string{}}
	k.state, k.did = filepath.Join(k.dir, "state"), filepath.Join(k.dir, "did")
	if err := os.Mkdir(k.did, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(k.did, 0o777); err != nil { // whatever the umask says
		t.Fatal(err)
	}
	for range *kills {
		k.round()
	}
	k.settle()
}

// serveUntilKilled is the executor of TestKilled. It ends with its standard input.
func serveUntilKilled(t *testing.T, dir string) {
	h := start(t, func(c *executor.Config) {
		c.State, c.MaxRuns, c.Queue, c.Keep, c.KeepFor = dir, 4, 1000, 1<<20, 24*time.Hour
	})
	fmt.Println("listens on " + h.url)
	io.Copy(io.Discard, os.Stdin)
}

// A killing is what TestKilled knows of the executors that it has killed.
type killing struct {
	t          *testing.T
	dir        string
	state, did string
	random     *rand.Rand
	keys       []string

	child *exec.Cmd
	stdin io.Closer
	h     *harness // speaks to the child

	mu    sync.Mutex        // guards given
	given map[string]string // executions that were answered, by key
}

// start starts an executor and waits until it serves.
func (k *killing) start() {
	k.t.Helper()
	said := bufio.NewScanner(k.spawn())
	for said.Scan() {
		if _, url, ok := strings.Cut(said.Text(), "listens on "); ok {
			k.h = &harness{t: k.t, url: url, client: &http.Client{Timeout: time.Minute}}
			return
		}
	}
	k.t.Fatal("the executor did not start")
}

func (k *killing) spawn() io.Reader {
	k.t.Helper()
	k.child = exec.Command(os.Args[0], "-test.run=^TestKilled$", "-test.v")
	k.child.Env = append(os.Environ(), killedVariable+"="+k.state, "TMPDIR="+k.dir)
	k.child.Stderr = os.Stderr
	in, err := k.child.StdinPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	out, err := k.child.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.child.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.stdin = in
	return out
}

// kill kills the executor some time from now on.
func (k *killing) kill(within time.Duration) {
	time.Sleep(time.Duration(k.random.Int64N(int64(within))))
	k.child.Process.Kill()
	k.child.Wait() // it was killed
}

// round lets an executor take new runs, those of the round before again, and no end. Some
// executors do not live to serve.
func (k *killing) round() {
	if k.random.IntN(4) == 0 {
		k.spawn()
		k.kill(200 * time.Millisecond)
	}
	k.start()
	again := k.keys[max(0, len(k.keys)-*load):]
	for range *load {
		k.keys = append(k.keys, fmt.Sprintf("key-%04d", len(k.keys)))
	}
	var wg sync.WaitGroup
	for _, key := range append(k.keys[len(k.keys)-*load:len(k.keys):len(k.keys)], again...) {
		wg.Go(func() { k.ask(key) })
	}
	k.kill(time.Duration(*load) * 60 * time.Millisecond)
	wg.Wait()
}

func (k *killing) body(key string) string {
	return of(key, command("echo ran >> "+filepath.Join(k.did, key)))
}

// ask makes the call of a key and notes which execution it was, if there is an answer.
func (k *killing) ask(key string) *api.Execution {
	resp, err := k.h.client.Do(k.h.request(http.MethodPost, "/v1/executions", k.body(key), "Idempotency-Key", key, "Prefer", "respond-async"))
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	var x api.Execution
	if err != nil || json.Unmarshal(data, &x) != nil {
		return nil
	}
	if resp.StatusCode != http.StatusAccepted {
		k.t.Errorf("%s: %s: %s", key, resp.Status, data)
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if was := k.given[key]; was != "" && was != x.ID {
		k.t.Errorf("%s gave execution %s, and now %s", key, was, x.ID)
	}
	k.given[key] = x.ID
	return &x
}

// settle asks for all runs again, of an executor that lives, and looks at what became of
// them.
func (k *killing) settle() {
	k.start()
	lost := 0
	for _, key := range k.keys {
		x := k.ask(key)
		if x == nil {
			k.t.Fatalf("%s got no answer of an executor that lives", key)
		}
		res := k.h.finish(x.ID)
		ran, err := os.ReadFile(filepath.Join(k.did, key))
		if err != nil && !os.IsNotExist(err) {
			k.t.Fatal(err)
		}
		switch times := bytes.Count(ran, []byte("ran\n")); {
		case times > 1:
			k.t.Errorf("%s ran %d times", key, times)
		case res.Success && times == 0:
			k.t.Errorf("%s is said to have run", key)
		case !res.Success && res.Error.Code != api.CodeLost:
			k.t.Errorf("%s: %v", key, res.Error)
		case !res.Success:
			lost++
		}
	}
	listed := map[string]string{}
	for query := "?limit=100"; query != ""; {
		list := get[api.ExecutionList](k.h, "/v1/executions"+query)
		for _, x := range list.Executions {
			if listed[x.TaskID] != "" || k.given[x.TaskID] != x.ID || x.State != api.StateFinished {
				k.t.Errorf("%+v, beside %q and %q", x, listed[x.TaskID], k.given[x.TaskID])
			}
			listed[x.TaskID] = x.ID
		}
		if query = ""; list.Next != "" {
			query = "?limit=100&before=" + list.Next
		}
	}
	if len(listed) != len(k.keys) || lost == 0 || lost == len(k.keys) {
		k.t.Errorf("%d executions of %d keys, of which %d were lost", len(listed), len(k.keys), lost)
	}
	k.stdin.Close()
	if err := k.child.Wait(); err != nil {
		k.t.Error(err)
	}
	k.verify(listed)
	k.t.Logf("%d runs, of which %d were lost", len(listed), lost)
}

// verify verifies the audit log, which has a record of each execution.
func (k *killing) verify(executions map[string]string) {
	dir := statedir.Audit(k.state)
	key, err := audit.CurrentKey(dir)
	if err != nil {
		k.t.Fatal(err)
	}
	var export bytes.Buffer
	if err := audit.Export(&export, dir, nil); err != nil {
		k.t.Fatal(err)
	}
	recorded := map[string]bool{}
	if _, err := audit.Verify(&export, audit.Trust{Keys: []audit.PublicKey{key}}, func(e audit.Entry) error {
		r, err := e.Run()
		recorded[r.Execution] = err == nil
		return nil
	}); err != nil {
		k.t.Error(err)
	}
	for key, id := range executions {
		if !recorded[id] {
			k.t.Errorf("the audit log has no record of %s, which is %s", id, key)
		}
	}
}
