package bmthrift

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Publisher sends notifications to all listeners. nanomsg.Publisher implements it.
type Publisher interface {
	// Publish sends a message to all listeners. It does not block.
	Publish(message []byte)
}

const (
	// BMv2's default settings, with which each sample is sent in its own notification.
	defaultSamples = 1
	defaultWait    = time.Second
	// maxSamples bounds the samples of one notification. maxUnacked bounds the samples that are
	// stored until a listener acknowledges them. Beyond maxUnacked, the oldest samples count as
	// acknowledged.
	maxSamples = 1 << 16
	maxUnacked = 1 << 16
)

// learner collects the digests of a program and notifies listeners as BMv2 does. A notification
// carries several samples. The learner does not send a sample again until a listener has
// acknowledged it.
type learner struct {
	device uint64
	to     Publisher

	mu    sync.Mutex
	prog  *bmv2json.Program
	lists map[string]*learnList
}

// learnList is one digest list of the program.
type learnList struct {
	src     *bmv2json.LearnList
	most    int
	wait    time.Duration
	buffer  []byte   // the samples that have not been sent yet
	keys    []string // the keys of the samples in buffer
	id      uint64   // id of the buffer that is being filled
	known   map[string]bool
	unacked map[uint64][]string // buffer id -> samples, each "" once acknowledged
	oldest  uint64
	timer   *time.Timer
}

// of makes the learner use the digest lists of prog, the running program. The caller holds l.mu.
func (l *learner) of(prog *bmv2json.Program) {
	if prog == l.prog {
		return
	}
	for _, x := range l.lists {
		x.stop()
	}
	l.prog, l.lists = prog, map[string]*learnList{}
	if prog == nil {
		return
	}
	for _, src := range prog.LearnLists {
		l.lists[src.Name] = &learnList{src: src, most: defaultSamples, wait: defaultWait,
			known: map[string]bool{}, unacked: map[uint64][]string{}}
	}
}

func (x *learnList) stop() {
	if x.timer != nil {
		x.timer.Stop()
		x.timer = nil
	}
}

// digest accepts a digest that prog sent for a packet.
func (l *learner) digest(prog *bmv2json.Program, d target.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(prog)
	x := l.lists[d.Name]
	if x == nil || len(d.Fields) != len(x.src.Widths) {
		return
	}
	var sample []byte
	for i, w := range x.src.Widths {
		sample = append(sample, normalized(d.Fields[i], w)...)
	}
	key := string(sample)
	if x.known[key] {
		return
	}
	x.known[key] = true
	x.buffer, x.keys = append(x.buffer, sample...), append(x.keys, key)
	switch {
	case len(x.keys) >= x.most:
		l.send(x)
	case len(x.keys) == 1 && x.wait > 0:
		l.wake(x)
	}
}

// wake schedules the next notification of a digest list.
func (l *learner) wake(x *learnList) {
	id := x.id
	x.timer = time.AfterFunc(x.wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if x.id == id && len(x.keys) > 0 && l.lists[x.src.Name] == x {
			l.send(x)
		}
	})
}

// send notifies the listeners of the samples collected in a digest list.
func (l *learner) send(x *learnList) {
	x.stop()
	m := append(make([]byte, 0, 32+len(x.buffer)), "LEA|"...)
	m = binary.LittleEndian.AppendUint64(m, l.device)
	m = binary.LittleEndian.AppendUint32(m, 0) // BMv2's context id, which is always 0
	m = binary.LittleEndian.AppendUint32(m, uint32(x.src.ID))
	m = binary.LittleEndian.AppendUint64(m, x.id)
	m = binary.LittleEndian.AppendUint32(m, uint32(len(x.keys)))
	l.to.Publish(append(m, x.buffer...))
	x.unacked[x.id] = x.keys
	x.id++
	x.buffer, x.keys = nil, nil
	for len(x.known) > maxUnacked && x.oldest < x.id {
		x.ack(x.oldest, nil)
	}
}

// ack removes acknowledged samples from a buffer. If samples is empty, it removes all of the
// buffer's samples.
func (x *learnList) ack(id uint64, samples []int32) {
	keys := x.unacked[id]
	if samples == nil {
		for _, k := range keys {
			delete(x.known, k)
		}
		delete(x.unacked, id)
	} else {
		left := 0
		for _, i := range samples {
			if i >= 0 && int(i) < len(keys) {
				delete(x.known, keys[i])
				keys[i] = ""
			}
		}
		for _, k := range keys {
			if k != "" {
				left++
			}
		}
		if left == 0 {
			delete(x.unacked, id)
		}
	}
	for x.oldest < x.id && x.unacked[x.oldest] == nil {
		x.oldest++
	}
}

// learning calls f with a digest list of the loaded program.
func (h *handler) learning(cxt, list int32, f func(l *learner, x *learnList) error) error {
	return h.read(cxt, func(p target.Pipeline) error {
		src := p.Program().LearnList(int(list))
		if src == nil {
			return refusal(idl.LearnCodeInvalidListID, "there is no learning list %d", list)
		}
		if h.learner == nil {
			return unsupported("digests come over P4Runtime: the switch has no --notifications-addr")
		}
		h.learner.mu.Lock()
		defer h.learner.mu.Unlock()
		h.learner.of(p.Program())
		return f(h.learner, h.learner.lists[src.Name])
	})
}

// BmLearningAck implements the Thrift call of the same name.
func (h *handler) BmLearningAck(cxt, list int32, buffer int64, samples []int32) error {
	return h.learning(cxt, list, func(_ *learner, x *learnList) error {
		if samples == nil {
			samples = []int32{}
		}
		x.ack(uint64(buffer), samples)
		return nil
	})
}

// BmLearningAckBuffer implements the Thrift call of the same name.
func (h *handler) BmLearningAckBuffer(cxt, list int32, buffer int64) error {
	return h.learning(cxt, list, func(_ *learner, x *learnList) error {
		x.ack(uint64(buffer), nil)
		return nil
	})
}

// BmLearningSetTimeout implements the Thrift call of the same name. A timeout of 0 means that a
// notification is sent only once it is full.
func (h *handler) BmLearningSetTimeout(cxt, list, ms int32) error {
	return h.learning(cxt, list, func(l *learner, x *learnList) error {
		if ms < 0 {
			return refusal(idl.LearnCodeError, "a timeout is not negative")
		}
		x.wait = time.Duration(ms) * time.Millisecond
		if x.stop(); len(x.keys) > 0 && x.wait > 0 {
			l.wake(x)
		}
		return nil
	})
}

// BmLearningSetBufferSize implements the Thrift call of the same name.
func (h *handler) BmLearningSetBufferSize(cxt, list, samples int32) error {
	return h.learning(cxt, list, func(l *learner, x *learnList) error {
		if samples < 1 || samples > maxSamples {
			return refusal(idl.LearnCodeError, "a notification has 1 to %d samples", maxSamples)
		}
		if x.most = int(samples); len(x.keys) >= x.most {
			l.send(x)
		}
		return nil
	})
}
