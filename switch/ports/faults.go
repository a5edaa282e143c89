package ports

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"
)

// Fault describes the faults of one port in one direction. Probabilities are in [0, 1] and
// independent of each other.
type Fault struct {
	Loss      float64 // probability that the frame is lost
	Duplicate float64 // probability that the frame passes twice
	// Probability that the frame waits until one to reorderDepth later frames have passed, or at
	// most for reorderWait.
	Reorder float64
	Delay   time.Duration
	// random time in [0, Jitter] that is added to Delay; jitter also reorders frames
	Jitter time.Duration
}

const (
	reorderDepth = 4
	reorderWait  = 10 * time.Millisecond
)

// Faults is a plan of faults by port, for tests on machines whose kernel has no netem(8). Each port
// and direction takes numbers from a random sequence of its own, with the seed Seed. Each frame
// takes the same number of random numbers from this sequence. So the n-th frame of a port has the
// same fate in every run, whatever the other ports' frames and the other probabilities are.
type Faults struct {
	Seed  uint64
	rules []faultRule
}

type faultRule struct {
	all   bool // the rule applies to every port
	port  uint32
	dirs  [2]bool
	fault Fault
}

// LoadFaults reads a plan from the file named arg. If there is no such file, arg itself is the
// plan. ParseFaults describes the format.
func LoadFaults(arg string) (*Faults, error) {
	text, err := os.ReadFile(arg)
	if err == nil {
		f, err := ParseFaults(string(text))
		if err != nil {
			return nil, fmt.Errorf("faults in %s: %w", arg, err)
		}
		return f, nil
	}
	if !strings.ContainsAny(arg, ":=") {
		return nil, fmt.Errorf("faults: %w", err)
	}
	return ParseFaults(arg)
}

// ParseFaults parses rules that are separated by newlines or semicolons. A plan may start with
// "seed=7". A rule is "PORT[/rx|/tx]: loss=0.01, dup=0.01, reorder=0.05, delay=2ms, jitter=1ms",
// where PORT is a number or *. Without a direction, a rule applies to both. The last rule that
// names a port and direction applies. "#" begins a comment.
func ParseFaults(text string) (*Faults, error) {
	f := &Faults{Seed: 1}
	for _, line := range strings.FieldsFunc(text, func(r rune) bool {
		return r == '\n' ||
			r == ';'
	}) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if v, ok := strings.CutPrefix(line, "seed="); ok {
			seed, err := strconv.ParseUint(strings.TrimSpace(v), 0, 64)
			if err != nil {
				return nil, fmt.Errorf("%q: the seed is a number of up to 64 bits", line)
			}
			f.Seed = seed
			continue
		}
		rule, err := parseFaultRule(line)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		f.rules = append(f.rules, rule)
	}
	return f, nil
}

func parseFaultRule(line string) (faultRule, error) {
	where, what, ok := strings.Cut(line, ":")
	if !ok {
		return faultRule{}, fmt.Errorf("expected PORT: loss=P, dup=P, reorder=P, delay=D, jitter=D")
	}
	var r faultRule
	where, dir, _ := strings.Cut(strings.TrimSpace(where), "/")
	switch dir {
	case "":
		r.dirs = [2]bool{true, true}
	case "rx":
		r.dirs[Rx] = true
	case "tx":
		r.dirs[Tx] = true
	default:
		return r, fmt.Errorf("the direction is rx or tx, not %q", dir)
	}
	if where == "*" {
		r.all = true
	} else {
		n, err := strconv.ParseUint(where, 10, 32)
		if err != nil {
			return r, fmt.Errorf("the port is a number or *, not %q", where)
		}
		r.port = uint32(n)
	}
	for _, item := range strings.Split(what, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			return r, fmt.Errorf("expected NAME=VALUE, not %q", strings.TrimSpace(item))
		}
		var err error
		switch key {
		case "loss":
			r.fault.Loss, err = probability(value)
		case "dup":
			r.fault.Duplicate, err = probability(value)
		case "reorder":
			r.fault.Reorder, err = probability(value)
		case "delay":
			r.fault.Delay, err = duration(value)
		case "jitter":
			r.fault.Jitter, err = duration(value)
		default:
			err = fmt.Errorf("unknown; there are loss, dup, reorder, delay and jitter")
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", key, err)
		}
	}
	return r, nil
}

func probability(s string) (float64, error) {
	p, err := strconv.ParseFloat(s, 64)
	if err != nil || !(p >= 0 && p <= 1) {
		return 0, fmt.Errorf("a probability is a number from 0 to 1, not %q", s)
	}
	return p, nil
}

func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("a duration is a number and a unit such as 2ms, not %q", s)
	}
	return d, nil
}

// line returns the faults of a port and direction, or nil.
func (f *Faults) line(port uint32, dir Direction) *faultLine {
	if f == nil {
		return nil
	}
	for i := len(f.rules) - 1; i >= 0; i-- {
		if r := f.rules[i]; r.dirs[dir] && (r.all || r.port == port) {
			if r.fault == (Fault{}) {
				return nil
			}
			return &faultLine{Fault: r.fault, rng: rand.New(rand.NewPCG(f.Seed,
				uint64(port)<<1|uint64(dir)))}
		}
	}
	return nil
}

// faultLine applies a Fault to a sequence of frames.
type faultLine struct {
	Fault
	rng  *rand.Rand
	held []*laterFrame // frames that wait until other frames have passed
}

// pass applies the faults to a frame. It delivers the frame now, later through q, more than once,
// or never.
func (l *faultLine) pass(frame []byte, now time.Time, q *delayQueue, deliver func([]byte)) {
	lost := l.rng.Float64() < l.Loss
	twice := l.rng.Float64() < l.Duplicate
	overtaken := l.rng.Float64() < l.Reorder
	wait := l.Delay + time.Duration(l.rng.Float64()*float64(l.Jitter))
	behind := 1 + l.rng.IntN(reorderDepth)
	if lost {
		return
	}
	l.one(frame, now, q, deliver, overtaken, wait, behind)
	if twice {
		l.one(frame, now, q, deliver, false, wait, 0)
	}
}

func (l *faultLine) one(frame []byte, now time.Time, q *delayQueue, deliver func([]byte),
	overtaken bool, wait time.Duration, behind int) {
	if overtaken {
		later := &laterFrame{at: now.Add(wait + reorderWait), frame: append([]byte(nil), frame...),
			deliver: deliver, behind: behind}
		l.held = append(l.held, later)
		q.add(later)
		return
	}
	if wait > 0 {
		q.add(&laterFrame{at: now.Add(wait), frame: append([]byte(nil), frame...),
			deliver: deliver})
	} else {
		deliver(frame)
	}
	keep := l.held[:0]
	for _, h := range l.held {
		if h.gone {
			continue
		}
		if h.behind--; h.behind > 0 {
			keep = append(keep, h)
			continue
		}
		h.at = now.Add(wait) // The frame is due right after the present frame.
		heap.Fix(&q.frames, h.index)
	}
	clear(l.held[len(keep):])
	l.held = keep
}

// laterFrame is a frame that is delivered later.
type laterFrame struct {
	at      time.Time
	order   uint64 // order of arrival, for frames that are due at the same time
	frame   []byte
	deliver func([]byte)
	behind  int // number of later frames that must pass before this frame
	index   int // position of the frame in the heap
	gone    bool
}

// delayQueue holds delayed frames in the order in which they are due. The zero value is empty.
type delayQueue struct {
	frames laterHeap
	count  uint64
}

// Len returns the number of delayed frames.
func (q *delayQueue) Len() int { return len(q.frames) }

// next returns the time at which the first frame is due. The queue must not be empty.
func (q *delayQueue) next() time.Time { return q.frames[0].at }

func (q *delayQueue) add(f *laterFrame) {
	q.count++
	f.order = q.count
	heap.Push(&q.frames, f)
}

// release delivers the frames that are due, and returns their number.
func (q *delayQueue) release(now time.Time) int {
	n := 0
	for len(q.frames) > 0 && !q.frames[0].at.After(now) {
		f := heap.Pop(&q.frames).(*laterFrame)
		f.gone = true
		f.deliver(f.frame)
		n++
	}
	return n
}

type laterHeap []*laterFrame

func (h laterHeap) Len() int { return len(h) }
func (h laterHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].order < h[j].order
	}
	return h[i].at.Before(h[j].at)
}
func (h laterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *laterHeap) Push(x any) {
	f := x.(*laterFrame)
	f.index = len(*h)
	*h = append(*h, f)
}
func (h *laterHeap) Pop() any {
	old := *h
	f := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return f
}
