package pid1

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"sallyport/entrypoint/wire"
	"sallyport/internal/output"
)

func frame(t wire.FrameType, payload string) string {
	return string(binary.BigEndian.AppendUint32([]byte{byte(t)}, uint32(len(payload)))) + payload
}

// FuzzDispatch feeds PID 1's dispatcher with whatever an executor could say. No
// job in it can start a process. It must end, hold no more input than the window,
// and answer every job it took with one exit.
func FuzzDispatch(f *testing.F) {
	job, _ := json.Marshal(wire.Job{ID: "a", Argv: []string{"/nonexistent/program"}, Dir: "/"})
	f.Add([]byte(frame(wire.FrameJob, string(job)) + frame(wire.FrameStdin, "in") + frame(wire.FrameStdin, "") + frame(wire.FrameSignal, `{"name":"TERM"}`)))
	f.Add([]byte(frame(wire.FrameSignal, `{"name":"KILL"}`) + frame(wire.FrameJob, string(job)) + frame(wire.FrameJob, string(job))))
	f.Fuzz(func(t *testing.T, said []byte) {
		var out output.Buffer
		p := &pid1{procs: &processes{closed: true, oom: -1}, executor: newPeer(&out), updates: new(updater)}
		for r := wire.NewReader(bytes.NewReader(said)); ; {
			frame, err := r.Next()
			if err != nil {
				break
			}
			if frame.Type == wire.FrameJob && !harmless(frame.Payload) {
				continue
			}
			if p.take(frame) != nil {
				break
			}
			if j := p.current(); j != nil && heldBy(j.input) > wire.StdinWindow {
				t.Error("more input is held than the window")
			}
		}
		p.jobs.Wait()
		exits := wire.NewReader(strings.NewReader(out.String()))
		for {
			f, err := exits.Next()
			if err == io.EOF {
				break
			}
			if err != nil || f.Type != wire.FrameExit && f.Type != wire.FrameStarted {
				t.Fatalf("said frame type %d, %v", f.Type, err)
			}
		}
	})
}

// harmless says whether a job would write no file.
func harmless(payload []byte) bool {
	var j wire.Job
	return json.Unmarshal(payload, &j) != nil || len(j.Files) == 0 && len(j.ExtraCA) == 0
}

func heldBy(in *input) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.queue)
}
