package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/node"
)

// nodeElection records an election. It has the candidates, and the answers to queries for the
// leader.
type nodeElection struct {
	*nodeContest
	name string
	lead *nodeLock

	mu        sync.Mutex
	stood     map[string]bool   // all values that candidates used
	values    map[uint64]string // values of the elected leaders, by token
	sightings []sighting
}

// sighting is an answer to a query for the leader.
type sighting struct {
	begun, ended time.Time
	leader       node.Leader
}

func newElection(t *testing.T, name string) *nodeElection {
	e := &nodeElection{name: name, lead: &nodeLock{name: "the leadership of " + name}, stood: map[string]bool{},
		values: map[uint64]string{}}
	e.nodeContest = &nodeContest{t: t, what: e.lead.name, take: e.campaign,
		lock: func(uint64) *nodeLock { return e.lead }}
	return e
}

// campaign campaigns for leadership with a unique value.
func (e *nodeElection) campaign(ctx context.Context, p *node.Client, opts ...node.Option) (*node.Held, error) {
	e.mu.Lock()
	// short, because the smallest profile has room for 6 bytes
	value := strconv.FormatInt(int64(len(e.stood)), 36)
	e.stood[value] = true
	e.mu.Unlock()
	held, err := p.Campaign(ctx, e.name, value, opts...)
	if err == nil {
		e.mu.Lock()
		e.values[held.Token()] = value
		e.mu.Unlock()
	}
	return held, err
}

// look repeatedly queries the leader, until end.
func (e *nodeElection) look(p *node.Client, random *rand.Rand, end time.Time) {
	for time.Now().Before(end) {
		ctx, cancel := context.WithTimeout(e.t.Context(), 3*time.Second)
		s := sighting{begun: time.Now()}
		var err error
		s.leader, err = p.Leader(ctx, e.name)
		s.ended = time.Now()
		cancel()
		if !mayFail(e.t, "asking who leads "+e.name, err) {
			e.mu.Lock()
			e.sightings = append(e.sightings, s)
			e.mu.Unlock()
		}
		time.Sleep(time.Duration(random.Int64N(int64(40 * time.Millisecond))))
	}
}

// check returns errors for everything that is impossible in the records of holders, as for a lock,
// and in the answers to queries.
func (e *nodeElection) check() []error {
	errs := e.lead.check() // This call also sorts the holds by token.
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lead.mu.Lock()
	defer e.lead.mu.Unlock()
	slices.SortFunc(e.sightings, func(a, b sighting) int { return a.begun.Compare(b.begun) })
	wrong := func(s sighting, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%+v was said to lead, at %v for %v: %s", s.leader, s.begun.Format("05.000"),
			s.ended.Sub(s.begun), fmt.Sprintf(format, args...)))
	}
	byEnd := slices.SortedFunc(slices.Values(e.sightings), func(a, b sighting) int { return a.ended.Compare(b.ended) })
	// seen is an index, and newest is the newest token in an earlier answer.
	seen, newest := 0, uint64(0)
	for _, s := range e.sightings {
		for ; seen < len(byEnd) && byEnd[seen].ended.Before(s.begun); seen++ {
			newest = max(newest, byEnd[seen].leader.Token)
		}
		token := s.leader.Token
		if s.leader.Found {
			switch value, known := e.values[token]; {
			case !e.stood[s.leader.Value]:
				wrong(s, "nobody stood with that value")
			case known && value != s.leader.Value:
				wrong(s, "who was elected with that token had the value %q", value)
			case !known:
				// other answers with this token must have the same value
				e.values[token] = s.leader.Value
			}
			if token < newest {
				wrong(s, "a leader with the token %d was seen before", newest)
			}
		}
		for _, h := range e.lead.holds {
			switch {
			case s.leader.Found && token < h.token && h.taken.Before(s.begun):
				wrong(s, "another was elected before that, with the token %d", h.token)
			case s.leader.Found && token >= h.token && s.ended.Before(h.begun):
				wrong(s, "the token %d was asked for after that", h.token)
			case s.leader.Found && token == h.token && !h.released.IsZero() && h.released.Before(s.begun):
				wrong(s, "it had resigned before that")
			case token != h.token && !h.lapses.IsZero() && h.taken.Before(s.begun) && s.ended.Before(h.lapses):
				wrong(s, "all the time the leader with the token %d led, whose lease could not lapse yet", h.token)
			}
		}
	}
	return errs
}

// TestNodeElection checks that the method check reports leaders that were not elected.
func TestNodeElection(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	over := make(chan struct{})
	close(over)
	// Candidate a leads from time 10 to 20 and resigns. Candidate b leads from time 30 on, with a
	// lease until 1000.
	election := func() *nodeElection {
		e := newElection(t, "e")
		e.stood = map[string]bool{"a": true, "b": true, "c": true}
		e.values = map[uint64]string{5: "a", 7: "b"}
		for _, h := range []*nodeHold{
			{token: 7, begun: at(25), taken: at(30), lapses: at(1000), lost: over},
			{token: 5, begun: at(5), taken: at(10), released: at(20), lost: over},
		} {
			if _, err := e.lead.enter(h); err != nil {
				t.Error(err)
			}
		}
		return e
	}
	saw := func(begun, ended int, token uint64, value string) sighting {
		return sighting{at(begun), at(ended), node.Leader{Found: token != 0, Token: token, Value: value}}
	}
	for _, c := range []struct {
		what string
		saw  []sighting
		may  bool
	}{
		{"all in order", []sighting{saw(0, 4, 0, ""), saw(6, 9, 5, "a"), saw(11, 15, 5, "a"), saw(21, 24, 0, ""),
			saw(26, 40, 7, "b"), saw(50, 60, 7, "b"), saw(1001, 1002, 0, ""), saw(1003, 1004, 9, "c")}, true},
		{"at once", []sighting{saw(15, 35, 5, "a"), saw(16, 34, 7, "b"), saw(17, 33, 0, "")}, true},
		{"a value that nobody has", []sighting{saw(11, 15, 5, "d")}, false},
		{"another's value", []sighting{saw(11, 15, 5, "b")}, false},
		{"two values of one token", []sighting{saw(1003, 1004, 9, "c"), saw(1003, 1004, 9, "a")}, false},
		{"backwards", []sighting{saw(26, 27, 7, "b"), saw(28, 29, 5, "a")}, false},
		{"one who was followed", []sighting{saw(31, 32, 5, "a")}, false},
		{"before it stood", []sighting{saw(1, 4, 5, "a")}, false},
		{"one who has resigned", []sighting{saw(21, 22, 5, "a")}, false},
		{"nobody, while one leads", []sighting{saw(40, 900, 0, "")}, false},
		{"two at one time", []sighting{saw(40, 900, 9, "c")}, false},
	} {
		e := election()
		e.sightings = c.saw
		if errs := e.check(); (len(errs) == 0) != c.may {
			t.Errorf("%s: %v", c.what, errs)
		}
	}
	e := election()
	e.lead.holds[1].token = e.lead.holds[0].token
	if errs := e.check(); len(errs) == 0 {
		t.Error("two were elected with one token")
	}
}
