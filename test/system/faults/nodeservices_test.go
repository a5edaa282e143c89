package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// nodeService records a service. It has the instances, which come and go, and the answers to
// queries for the instances.
type nodeService struct {
	t    *testing.T
	name string

	mu        sync.Mutex
	instances map[string]*nodeInstance
	answers   []serviceAnswer
	told      int // number of instances in all answers
}

// nodeInstance is an instance of the service.
type nodeInstance struct {
	address string
	begun   time.Time // when the registration began
	// gone is a time after which the instance was certainly not kept alive any more. It is after
	// the last answer to the instance's program. It is zero if the instance may be alive.
	gone time.Time
	// left is a time after which the instance was certainly not registered. It is zero if the
	// instance was not deregistered.
	left time.Time
}

// serviceAnswer is an answer to a query for the instances.
type serviceAnswer struct {
	begun, ended time.Time
	instances    []node.Instance
}

// serviceTTL is so long that a node still lists an instance of which it learns late.
const serviceTTL = 4 * time.Second

func newService(t *testing.T, name string) *nodeService {
	return &nodeService{t: t, name: name, instances: map[string]*nodeInstance{}}
}

// run registers instances of the service from a program, one after another, until end.
func (s *nodeService) run(p *node.Client, program int, random *rand.Rand, end time.Time) {
	for n := 0; time.Now().Before(end); n++ {
		s.instance(p, fmt.Sprintf("%d-%d", program, n), fmt.Sprintf("10.0.%d.%d:80", program, n), random, end)
		time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
	}
}

// instance registers an instance, keeps it alive for a while, and then abandons or deregisters it.
func (s *nodeService) instance(p *node.Client, name, address string, random *rand.Rand, end time.Time) {
	ctx, cancel := context.WithDeadline(s.t.Context(), end.Add(3*time.Second))
	defer cancel()
	lease, err := p.Grant(ctx, serviceTTL)
	if mayFail(s.t, "granting a lease for an instance", err) {
		return
	}
	i := &nodeInstance{address: address, begun: time.Now()}
	s.mu.Lock()
	s.instances[name] = i
	s.mu.Unlock()
	registered, err := p.RegisterService(ctx, s.name, address, node.Named(name), node.WithLease(lease.ID))
	if mayFail(s.t, "registering an instance", err) {
		return // the instance may be registered, but nothing keeps it alive
	}
	for n := 1 + random.IntN(4); n > 0 && time.Now().Before(end); n-- {
		time.Sleep(time.Duration(random.Int64N(int64(serviceTTL / 4))))
		_, err = p.KeepAlive(ctx, lease.ID)
		switch node.CodeOf(err) {
		case "":
			s.mu.Lock()
			i.gone = time.Now() // this is reset below if the instance continues
			s.mu.Unlock()
			continue
		case node.CodeLeaseGone:
			return // gone and left keep their values
		}
		s.mu.Lock()
		i.gone = time.Time{} // the registration may be executed late
		s.mu.Unlock()
		mayFail(s.t, "keeping an instance alive", err)
	}
	if random.IntN(2) == 0 {
		return // this is like a crash of the program
	}
	if !mayFail(s.t, "taking an instance back", registered.Deregister(ctx)) {
		s.mu.Lock()
		i.left = time.Now()
		s.mu.Unlock()
	}
}

// call repeatedly queries the instances of the service, until end.
func (s *nodeService) call(p *node.Client, random *rand.Rand, end time.Time) {
	for time.Now().Before(end) {
		_ = s.ask(p)
		time.Sleep(time.Duration(random.Int64N(int64(60 * time.Millisecond))))
	}
}

func (s *nodeService) ask(p *node.Client) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
	defer cancel()
	a := serviceAnswer{begun: time.Now()}
	var err error
	a.instances, err = p.GetService(ctx, s.name)
	a.ended = time.Now()
	if mayFail(s.t, "asking for the instances of "+s.name, err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, a)
	s.told += len(a.instances)
	return nil
}

// last waits until no instance is listed any more. At that time, nothing keeps an instance alive.
func (s *nodeService) last(p *node.Client) {
	poll.Nil(s.t, 90*time.Second, "no instance of "+s.name+" is told of when none is left", func() error {
		if err := s.ask(p); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if left := s.answers[len(s.answers)-1].instances; len(left) > 0 {
			return fmt.Errorf("told of are %v", left)
		}
		return nil
	})
}

// check returns errors for instances that an answer contains although they cannot have existed at
// that time.
func (s *nodeService) check() (errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := map[string]bool{}
	for _, a := range s.answers {
		twice := map[string]bool{}
		for _, told := range a.instances {
			wrong := func(format string, args ...any) {
				if kind := told.Instance + format; !said[kind] {
					// Many answers may contain the same error.
					said[kind] = true
					errs = append(errs, fmt.Errorf("the instance %s was told of by an answer that took %v: %s", told.Instance,
						a.ended.Sub(a.begun), fmt.Sprintf(format, args...)))
				}
			}
			if twice[told.Instance] {
				wrong("twice")
			}
			twice[told.Instance] = true
			i := s.instances[told.Instance]
			switch {
			case i == nil:
				wrong("there never was such a one")
				continue
			case i.address != told.Address:
				wrong("it has the address %q, not %q", i.address, told.Address)
			case a.ended.Before(i.begun):
				wrong("before it was registered")
			}
			if !i.gone.IsZero() && a.begun.After(i.gone.Add(serviceTTL)) {
				wrong("the call began %v after nobody kept it alive any more", a.begun.Sub(i.gone))
			}
			if !i.left.IsZero() && a.begun.After(i.left.Add(serviceTTL)) {
				wrong("the call began %v after it had been taken back", a.begun.Sub(i.left))
			}
		}
	}
	return errs
}

// TestNodeService checks that the method check reports instances that are gone.
func TestNodeService(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	ttl := int(serviceTTL / time.Millisecond)
	answer := func(begun, ended int, instances ...string) serviceAnswer {
		a := serviceAnswer{begun: at(begun), ended: at(ended)}
		for _, name := range instances {
			a.instances = append(a.instances, node.Instance{Instance: name, Address: "at " + name})
		}
		return a
	}
	for _, c := range []struct {
		what   string
		answer serviceAnswer
		may    bool
	}{
		{"all", answer(10, 20, "dies", "leaves", "stays"), true},
		{"none", answer(10, 20), true},
		{"one that died of late", answer(1000+ttl-1, 1000+ttl+50, "dies", "stays"), true},
		{"one that is long dead", answer(1000+ttl+1, 1000+ttl+2, "dies", "stays"), false},
		{"one that left long ago", answer(500+ttl+1, 500+ttl+2, "leaves"), false},
		{"one that is not yet there", answer(0, 4, "stays"), false},
		{"one that never was", answer(10, 20, "who"), false},
		{"one twice", answer(10, 20, "stays", "stays"), false},
		{"one by another's address", serviceAnswer{at(10), at(20), []node.Instance{{Instance: "stays", Address: "at dies"}}},
			false},
	} {
		s := newService(t, "s")
		s.instances = map[string]*nodeInstance{
			"dies":   {address: "at dies", begun: at(5), gone: at(1000)},
			"leaves": {address: "at leaves", begun: at(5), left: at(500)},
			"stays":  {address: "at stays", begun: at(5)},
		}
		s.answers = []serviceAnswer{c.answer}
		if errs := s.check(); (len(errs) == 0) != c.may {
			t.Errorf("%s: %v", c.what, errs)
		}
	}
}
