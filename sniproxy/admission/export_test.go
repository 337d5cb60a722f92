package admission

// FirstRest is for tests.
const FirstRest = firstRest

// MaxUndelivered is for tests.
const MaxUndelivered = maxUndelivered

// AddUndelivered has a recorder believe that so many records wait more.
func (c *Recorder) AddUndelivered(n int64) { c.undelivered.Add(n) }
