package chainkeys

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"unicode/utf8"

	"github.com/netcraq/netcraq/client/node"
	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/nodeerr"
)

// StatePrefix is the prefix of the keys that hold the positions of pipelets.
const StatePrefix = "pipelets/"

// Sink writes rows as keys. If several rows of a batch have the same key, Sink writes only the last
// of them.
type Sink struct {
	link
	spec    pipeletapi.Chain
	key     string
	version node.Version // version of the key that holds the position
	saved   saved
}

// saved is the destination's record for a pipelet, in the key that holds the position.
type saved struct {
	State exactlyonce.State `json:"state"`
	// Of lists the planned writes of a batch that was not finished. Some of them may have been
	// executed.
	Of []intent `json:"of,omitempty"`
}

// intent is a planned write of a row. The write is executed only if the key still has Version.
type intent struct {
	Key     uint64       `json:"k"` // hash of the key
	Value   uint64       `json:"h"` // hash of the value
	Version node.Version `json:"v"`
	// the write is certainly executed when the total number of rows has reached this number
	Until uint64 `json:"u"`
}

// NewSink makes a destination. The argument name identifies the pipelet and its source.
func NewSink(spec pipeletapi.Chain, name string) (*Sink, error) {
	sum := sha256.Sum256([]byte(name))
	return &Sink{link: link{namespace: spec.Namespace}, spec: spec, key: StatePrefix + hex.EncodeToString(sum[:8])}, nil
}

// Close closes the client.
func (s *Sink) Close() error { return s.close() }

// Open implements endpoint.Sink.
func (s *Sink) Open(ctx context.Context) (state exactlyonce.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	c, err := s.get(ctx)
	if err != nil {
		return state, err
	}
	it, err := c.Get(ctx, s.key)
	if err != nil {
		return state, nodeerr.Fault(err, "reading the position in the destination")
	}
	s.version, s.saved = it.Version, saved{}
	if !it.Found {
		return state, nil
	}
	if err := json.Unmarshal(it.Value, &s.saved); err != nil {
		return state, exactlyonce.Errorf(exactlyonce.Refused, "what the destination has under %s is no position: %w", s.key, err)
	}
	return s.saved.State, nil
}

// Commit implements endpoint.Sink.
func (s *Sink) Commit(ctx context.Context, _, next exactlyonce.State, rows []endpoint.Row) error {
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	c, err := s.get(ctx)
	if err != nil {
		return exactlyonce.Errorf(exactlyonce.Temporary, "%w", err)
	}
	rows, keys, err := s.last(c, rows)
	if err != nil {
		return err
	}
	var items []node.Item
	if len(keys) > 0 {
		if items, err = c.GetMany(ctx, keys); err != nil {
			return exactlyonce.Errorf(exactlyonce.KindOf(nodeerr.Fault(err, "")), "reading the keys' versions: %w", err)
		}
	}
	known := map[uint64]intent{}
	for _, e := range s.saved.Of {
		known[e.Key] = e
	}
	var all, left []intent
	for i, r := range rows {
		if items[i].Err != nil {
			return exactlyonce.Errorf(exactlyonce.KindOf(nodeerr.Fault(items[i].Err, "")), "reading %s: %w", keys[i], items[i].Err)
		}
		e := intent{hash(keys[i]), hashOf(r), items[i].Version, next.Rows}
		if old, ok := known[e.Key]; ok && old.Value == e.Value {
			// keep the old version: if the key now has another version, the row is already written
			e.Version = old.Version
		}
		delete(known, e.Key)
		all = append(all, e)
	}
	for _, e := range s.saved.Of { // keep the planned writes of a larger batch that an earlier attempt began
		if _, is := known[e.Key]; is && e.Until > next.Rows {
			left = append(left, e)
		}
	}
	if len(all) > 0 {
		if err := s.save(ctx, c, saved{s.saved.State, append(all, left...)}, len(rows)); err != nil {
			return err
		}
	}
	for i, r := range rows {
		if err := write(ctx, c, keys[i], r, items[i], all[i].Version); err != nil {
			return nodeerr.Fault(err, "writing "+keys[i])
		}
	}
	return s.save(ctx, c, saved{next, left}, len(rows))
}

// last returns the last row of each key, and the keys of these rows.
func (s *Sink) last(c *node.Client, rows []endpoint.Row) (out []endpoint.Row, keys []string, err error) {
	at := map[string]int{}
	for i, r := range rows {
		at[r.Key] = i
	}
	most := c.Info().MaxValue
	for i, r := range rows {
		switch {
		case at[r.Key] != i:
			continue
		case !utf8.ValidString(r.Key):
			return nil, nil, exactlyonce.Errorf(exactlyonce.Refused, "the key %q is not UTF-8", r.Key)
		case len(r.Value) > most:
			return nil, nil, exactlyonce.Errorf(exactlyonce.Refused, "the value of %q has %d bytes, and a slot of the chain takes %d: "+
				"give the pipelet a flow that makes less of it, or the chain a wider profile", r.Key, len(r.Value), most)
		}
		out, keys = append(out, r), append(keys, s.spec.Prefix+r.Key)
	}
	return out, keys, nil
}

// save writes the record of the pipelet, unless another worker has written it.
func (s *Sink) save(ctx context.Context, c *node.Client, what saved, rows int) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if most := c.Info().MaxValue; len(text) > most {
		kind := exactlyonce.TooLarge
		if rows < 2 {
			kind = exactlyonce.Refused
		}
		return exactlyonce.Errorf(kind, "the position with %d rows takes %d bytes, and a slot of the chain takes %d", rows,
			len(text), most)
	}
	it, swapped, err := c.CAS(ctx, s.key, s.version, text)
	if err != nil {
		return nodeerr.Fault(err, "writing the position to the destination")
	}
	if !swapped {
		return exactlyonce.Errorf(exactlyonce.Conflict, "another worker has written for this pipelet")
	}
	s.version, s.saved = it.Version, what
	return nil
}

// write writes a row if its key has version v. If it has another version, either this row was
// written earlier, or another program has written the key since.
func write(ctx context.Context, c *node.Client, key string, r endpoint.Row, was node.Item, v node.Version) (err error) {
	switch {
	case was.Version != v, r.Deleted && !was.Found:
		return nil
	case r.Deleted:
		_, _, err = c.Delete(ctx, key, node.IfVersion(v))
	default:
		_, _, err = c.CAS(ctx, key, v, r.Value)
	}
	return err
}

func hash(text string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, text)
	return h.Sum64()
}

func hashOf(r endpoint.Row) uint64 {
	if r.Deleted {
		return 0
	}
	return hash(string(r.Value)) | 1
}
