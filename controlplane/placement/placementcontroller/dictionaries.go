package placementcontroller

import (
	"context"
	"time"
)

// dictionaryRest is how long gateways have to read a new dictionary, and slots that were found
// unfit just before to be looked at, before what did not fit is tried again.
const dictionaryRest = 15 * time.Second

// dictionaries are the newest that all gateways should know (0: none), and the newest that there
// is, since when.
type dictionaries struct {
	known, newest uint32
	since         time.Time
}

// lookForDictionaries sees whether there is a new one. What is there when this controller begins is
// taken to be known.
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
