package admission

// FirstRest is for tests.
const FirstRest = firstRest

// MaxUndelivered is for tests.
const MaxUndelivered = maxUndelivered

// AddUndelivered has a recorder believe that so many records wait more.
func (r *Recorder) AddUndelivered(n int64) { r.undelivered.Add(n) }
