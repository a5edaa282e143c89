package p4rtserver

import (
	"encoding/binary"
	"sync"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// maxDigestList is the largest size of a digest list whose configuration sets no limit
// (max_list_size 0).
const maxDigestList = 1024

// digestState collects the messages of one digest of the program (section 9.8). It sends a list
// when the list is full or its oldest entry is old enough. It does not repeat an entry until the
// entry has been acknowledged or has timed out.
type digestState struct {
	typ  *translate.DigestType
	send func(*p4v1.DigestList)

	mu      sync.Mutex
	cfg     *p4v1.DigestEntry_Config // nil while the digest is off
	buffer  []*p4v1.P4Data
	keys    []string // keys of the entries in the buffer
	known   map[string]bool
	unacked map[uint64]*sentList
	lists   uint64
	timer   *time.Timer
}

type sentList struct {
	keys []string
	at   time.Time
}

func newDigestState(t *translate.DigestType, send func(*p4v1.DigestList)) *digestState {
	return &digestState{typ: t, send: send, known: map[string]bool{},
		unacked: map[uint64]*sentList{}}
}

// add accepts one digest message.
func (d *digestState) add(fields [][]byte) {
	var k []byte
	for _, f := range fields {
		k = binary.BigEndian.AppendUint32(k, uint32(len(f)))
		k = append(k, f...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cfg == nil {
		return
	}
	d.expire(time.Now())
	if d.known[string(k)] {
		return
	}
	d.known[string(k)] = true
	data, _ := d.typ.Type.Encode(fields)
	d.buffer = append(d.buffer, data)
	d.keys = append(d.keys, string(k))
	limit := int(d.cfg.MaxListSize)
	if limit <= 0 {
		limit = maxDigestList
	}
	switch {
	case len(d.buffer) >= limit || d.cfg.MaxTimeoutNs <= 0:
		d.flush()
	case len(d.buffer) == 1:
		d.timer = time.AfterFunc(time.Duration(d.cfg.MaxTimeoutNs), func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.flush()
		})
	}
}

// flush sends the buffered entries as one list. The caller holds d.mu.
func (d *digestState) flush() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if len(d.buffer) == 0 || d.cfg == nil {
		return
	}
	d.lists++
	d.send(&p4v1.DigestList{DigestId: d.typ.ID, ListId: d.lists, Data: d.buffer,
		Timestamp: time.Now().UnixNano()})
	if d.cfg.AckTimeoutNs > 0 {
		d.unacked[d.lists] = &sentList{keys: d.keys, at: time.Now()}
	} else {
		d.evict(d.keys)
	}
	d.buffer, d.keys = nil, nil
}

func (d *digestState) evict(keys []string) {
	for _, k := range keys {
		delete(d.known, k)
	}
}

func (d *digestState) expire(now time.Time) {
	for id, l := range d.unacked {
		if now.Sub(l.at) >= time.Duration(d.cfg.AckTimeoutNs) {
			d.evict(l.keys)
			delete(d.unacked, id)
		}
	}
}

func (d *digestState) acknowledge(list uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.unacked[list]; l != nil {
		d.evict(l.keys)
		delete(d.unacked, list)
	}
}

// configure turns the digest on with cfg, or off if cfg is nil.
func (d *digestState) configure(cfg *p4v1.DigestEntry_Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.buffer, d.keys = nil, nil
	clear(d.known)
	clear(d.unacked)
	d.cfg = cfg
}

func (d *digestState) config() *p4v1.DigestEntry_Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg
}

// digest passes on a digest that the program sent.
func (s *Server) digest(m target.Digest) {
	if f, prog := s.onDigest.Load(), s.program.Load(); f != nil && prog != nil {
		(*f)(prog, m)
	}
	c := s.current.Load()
	if c == nil {
		return
	}
	if t := c.DigestByName[m.Name]; t != nil {
		c.digestStates[t.ID].add(m.Fields)
	}
}

func (s *Server) sendDigest(l *p4v1.DigestList) {
	s.toPrimaries(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Digest{
		Digest: l}})
}

func (s *Server) digestAck(a *p4v1.DigestListAck) error {
	c := s.current.Load()
	if c == nil {
		return translate.Errorf(codes.FailedPrecondition, "no forwarding pipeline configuration is set")
	}
	d := c.digestStates[a.GetDigestId()]
	if d == nil {
		return translate.Invalidf("there is no digest %d", a.GetDigestId())
	}
	d.acknowledge(a.ListId)
	return nil
}

func (c *config) writeDigest(typ p4v1.Update_Type, e *p4v1.DigestEntry) error {
	d := c.digestStates[e.DigestId]
	if d == nil {
		return c.Unknown("digest", e.DigestId)
	}
	if err := present(typ, d.config() != nil, "configuration of digest", e.DigestId); err != nil {
		return err
	}
	if typ == p4v1.Update_DELETE {
		d.configure(nil)
		return nil
	}
	cfg := &p4v1.DigestEntry_Config{}
	if e.Config != nil {
		cfg = proto.CloneOf(e.Config)
	}
	if cfg.MaxTimeoutNs < 0 || cfg.MaxListSize < 0 || cfg.AckTimeoutNs < 0 {
		return translate.Invalidf("timeouts and sizes of digest %s are not negative", d.typ.Name)
	}
	d.configure(cfg)
	return nil
}

func (c *config) readDigests(q *p4v1.DigestEntry, emit func(*p4v1.Entity)) error {
	which, err := pick(c.Schema, "digest", q.DigestId, c.Digests, c.DigestOrder)
	if err != nil {
		return err
	}
	for _, t := range which {
		cfg := c.digestStates[t.ID].config()
		if cfg == nil {
			if q.DigestId != 0 {
				return translate.Errorf(codes.NotFound, "digest %s is not configured", t.Name)
			}
			continue
		}
		emit(&p4v1.Entity{Entity: &p4v1.Entity_DigestEntry{DigestEntry: &p4v1.DigestEntry{
			DigestId: t.ID, Config: cfg}}})
	}
	return nil
}
