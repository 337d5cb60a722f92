package pid1

import (
	"context"
	"encoding/json"
	"fmt"

	"sallyport/entrypoint/pid1/files"
	"sallyport/entrypoint/wire"
)

// maxUpdates bounds the updates that PID 1 holds.
const maxUpdates = 16

// An updater writes the files of updates, one update after another, beside the
// goroutine that must always hear a signal.
type updater struct {
	executor *peer
	queue    chan wire.Update
}

func newUpdater(executor *peer) *updater {
	return &updater{executor: executor, queue: make(chan wire.Update, maxUpdates)}
}

// take queues an update; it never blocks.
func (u *updater) take(payload []byte) error {
	var next wire.Update
	if err := json.Unmarshal(payload, &next); err != nil {
		return fmt.Errorf("decode update: %w", err)
	}
	select {
	case u.queue <- next:
		return nil
	default:
		return fmt.Errorf("more than %d updates under way", maxUpdates)
	}
}

// run writes what is queued until ctx ends.
func (u *updater) run(ctx context.Context) {
	for {
		select {
		case next := <-u.queue:
			u.executor.writeJSON(wire.FrameUpdated, writeFiles(next.Files)) // a failure ends Main
		case <-ctx.Done():
			return
		}
	}
}

// writeFiles writes files up to the first that cannot be written.
func writeFiles(all []wire.File) (done wire.Updated) {
	for _, f := range all {
		if err := files.Write(f.Path, f.Mode, f.Content); err != nil {
			done.Error = err.Error()
			if len(done.Error) > wire.MaxUpdateError {
				done.Error = done.Error[:wire.MaxUpdateError]
			}
			return done
		}
	}
	return done
}
