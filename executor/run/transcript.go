package run

import "sallyport/executor/api"

// transcript is filled in when the session log lands.
type transcript struct{}

func (x *execution) openTranscript() *transcript { return nil }

func (t *transcript) add(api.Event) {}
