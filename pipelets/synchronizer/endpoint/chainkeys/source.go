package chainkeys

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/netcraq/netcraq/client/node"
	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/nodeerr"
)

const (
	// epoch is the Epoch of all positions of this package.
	epoch = "chain"
	// maxPosition is the maximum size of a position in bytes. It is limited because each batch
	// writes its position to the destination.
	maxPosition = 16 << 10
	// more is the time to wait for more records after the first record.
	more = time.Millisecond
)

// Source reads the existing keys, and then their changes. If a key changes faster than Source
// reads, Source returns only the newest version. The Version of a record is the epoch of the key's
// version times 2^40, plus the sequence of the key's version.
type Source struct {
	link
	spec  pipeletapi.Chain
	watch *node.Watch
	known map[string]node.Version // the version of each key that was read, by the key without the prefix
	at    exactlyonce.Position
}

// NewSource makes a source.
func NewSource(spec pipeletapi.Chain) (*Source, error) {
	return &Source{link: link{namespace: spec.Namespace}, spec: spec}, nil
}

// Close stops the watch and closes the client.
func (s *Source) Close() error {
	s.stop()
	return s.close()
}

func (s *Source) stop() {
	if s.watch != nil {
		s.watch.Close()
		s.watch = nil
	}
}

// Read implements endpoint.Source. The Sub of a position has the versions of the keys, in JSON.
func (s *Source) Read(ctx context.Context, from exactlyonce.Position, most int) (out []endpoint.Record,
	to exactlyonce.Position, err error) {
	if s.watch == nil || s.at != from {
		if err := s.begin(ctx, from); err != nil {
			if ctx.Err() != nil {
				return nil, from, nil
			}
			return nil, from, err
		}
	}
	for len(out) < most {
		wait, cancel := ctx, context.CancelFunc(func() {})
		if len(out) > 0 {
			wait, cancel = context.WithTimeout(ctx, more)
		}
		e, err := s.watch.Next(wait)
		over := wait.Err() != nil
		cancel()
		if err != nil && over {
			break
		}
		if err != nil {
			s.stop() // stop the watch, so that the next watch reports these records again
			return nil, from, nodeerr.Fault(err, "watching the source")
		}
		r, err := s.record(e)
		if err != nil {
			s.stop()
			return nil, from, err
		}
		out = append(out, r)
		s.at = r.At
	}
	return out, s.at, nil
}

// begin starts watching from a position.
func (s *Source) begin(ctx context.Context, from exactlyonce.Position) error {
	s.stop()
	s.known = map[string]node.Version{}
	if from != (exactlyonce.Position{}) {
		if from.Epoch != epoch {
			return exactlyonce.Errorf(exactlyonce.Refused, "what the destination has is no position of a chain's keys: give the pipelet "+
				"another name to begin anew")
		}
		if err := json.Unmarshal([]byte(from.Sub), &s.known); err != nil {
			return exactlyonce.Errorf(exactlyonce.Refused, "the position in the destination cannot be read: %w", err)
		}
	}
	c, err := s.get(ctx)
	if err != nil {
		return err
	}
	after := map[string]node.Version{}
	for key, v := range s.known {
		after[s.spec.Prefix+key] = v
	}
	s.watch, err = c.Watch(ctx, node.WatchConfig{Prefix: &s.spec.Prefix, After: after})
	if err != nil {
		s.watch = nil
		return nodeerr.Fault(err, "watching the source")
	}
	s.at = from
	return nil
}

// record converts an event to a record. The record's position is the position after the event.
func (s *Source) record(e node.Event) (r endpoint.Record, err error) {
	key := strings.TrimPrefix(e.Key, s.spec.Prefix)
	known := maps.Clone(s.known)
	if known[key] = e.Version; !e.Found { // return no record if the caller already knows that the key does not exist
		delete(known, key)
	}
	text, err := json.Marshal(known)
	if err != nil {
		return r, err
	}
	if len(text) > maxPosition {
		return r, exactlyonce.Errorf(exactlyonce.Refused, "the source has %d keys, whose versions take %d bytes, and a position takes %d: "+
			"make several pipelets with longer prefixes of it", len(known), len(text), maxPosition)
	}
	s.known = known
	era, sequence, _ := strings.Cut(string(e.Version), ".")
	high, _ := strconv.ParseUint(era, 10, 64) // the node API's versions are numbers
	low, _ := strconv.ParseUint(sequence, 10, 64)
	return endpoint.Record{Key: key, Value: e.Value, Deleted: !e.Found, Version: high<<40 | low,
		At: exactlyonce.Position{Epoch: epoch, Sub: string(text)}}, nil
}
