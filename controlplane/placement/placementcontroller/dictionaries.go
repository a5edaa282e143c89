package placementcontroller

import (
	"context"
	"time"
)

// dictionaryRest is how long to wait after a new dictionary appears before values that did not fit
// are tried again. During this time gateways read the dictionary, and placement checks slots whose
// values did not fit.
const dictionaryRest = 15 * time.Second

// dictionaries holds the newest dictionary that all gateways should know (0 if there is none), the
// newest dictionary that exists, and the time when the latter was first seen.
type dictionaries struct {
	known, newest uint32
	since         time.Time
}

// lookForDictionaries checks whether there is a new dictionary. It assumes that the gateways know
// the dictionaries that exist when this controller starts.
func (p *Controller) lookForDictionaries(ctx context.Context, now time.Time) error {
	newest, err := p.store.dictionary(ctx)
	if err != nil {
		return err
	}
	d := &p.dictionary
	switch {
	case d.since.IsZero():
		*d = dictionaries{newest, newest, now}
	case newest != d.newest:
		d.newest, d.since = newest, now
	case now.Sub(d.since) >= p.o.dictionaryRest:
		d.known = newest
	}
	return nil
}
