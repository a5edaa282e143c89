package coordination

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/racedetector"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// history records what the programs of a test observed of locks and permits.
type history struct {
	begin time.Time

	mu     sync.Mutex
	calls  []porcupine.Operation
	holds  []*hold
	broken []string
}

// hold is a period in which a program held a lock. It begins with the answer. It ends when the
// program released the lock, or could no longer be sure that it held it. The period may be empty.
type hold struct {
	name     string // name of the lock, with the number of the permit for a semaphore
	token    uint64
	who      string
	from, to time.Duration // `to` is set when the period ends
}

type taken struct {
	name   string
	unlock bool
	token  uint64
}

type outcome struct {
	notHeld, unknown, lapsed bool
}

func (h *history) now() time.Duration { return time.Since(h.begin) }

func (h *history) wrong(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = append(h.broken, fmt.Sprintf(format, args...))
}

func (h *history) call(client int, in taken, from time.Duration, out outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := int64(h.now())
	if out.unknown {
		client, end = 1<<20+len(h.calls), math.MaxInt64
	}
	h.calls = append(h.calls, porcupine.Operation{ClientId: client, Input: in, Call: int64(from), Output: out,
		Return: end})
}

// lockState has the newest token of a lock, and says whether the lock is held with this token.
type lockState struct {
	token uint64
	held  bool
}

// locks is the sequential model of locks. Each token must be greater than all earlier tokens. A
// token can be released only once, and only while it is the newest. A program that cannot be sure
// that its lease is alive may find that it has lost the lock.
var locks = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range h {
			name := o.Input.(taken).name
			by[name] = append(by[name], o)
		}
		var out [][]porcupine.Operation
		for _, o := range by {
			out = append(out, o)
		}
		return out
	},
	Init: func() any { return lockState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(lockState), input.(taken), output.(outcome)
		switch {
		case !in.unlock:
			return in.token > s.token, lockState{in.token, true}
		case out.unknown && in.token == s.token:
			return true, lockState{s.token, false}
		case out.unknown:
			return true, s
		case out.notHeld:
			return in.token != s.token || !s.held || out.lapsed, s
		}
		return in.token == s.token && s.held, lockState{s.token, false}
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v: %+v", in, out) },
}

// patience is the time limit for checking one history, because the search for a valid order can
// take very long.
const patience = 10 * time.Second

// check returns the errors in the history. It must not be called in a synctest bubble. There the
// clock would stand still during the search, so the time limit patience would never be reached.
func (h *history) check(t *testing.T) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	byName := map[string][]*hold{}
	for _, x := range h.holds {
		byName[x.name] = append(byName[x.name], x)
	}
	for name, holds := range byName {
		slices.SortFunc(holds, func(a, b *hold) int { return int(a.from - b.from) })
		for i, x := range holds {
			for _, y := range holds[:i] {
				if x.token == y.token {
					h.broken = append(h.broken, fmt.Sprintf("%s: token %d was given twice", name, x.token))
				} else if y.to > x.from && x.to > x.from {
					h.broken = append(h.broken, fmt.Sprintf("%s: %s held it until %v, by token %d, and %s from %v, by %d", name, y.who,
						y.to, y.token&(1<<48-1), x.who, x.from, x.token&(1<<48-1)))
				}
			}
		}
	}
	switch porcupine.CheckOperationsTimeout(locks, h.calls, patience) {
	case porcupine.Illegal:
		h.broken = append(h.broken, "the answers do not fit")
	case porcupine.Unknown:
		t.Logf("no order of the locks' calls was found or ruled out in %v", patience)
	}
	return h.broken
}

// run simulates servers and programs. The servers die, their store fails, and their clocks run at
// different speeds. The programs acquire locks and permits.
type run struct {
	*history
	store   *store.Memory
	rand    *rand.Rand // only for the goroutine of the test
	mu      sync.Mutex
	servers []*server
	dead    map[*server]chan struct{} // for each server, a channel that is closed when the server is killed
	number  int

	parked sync.WaitGroup // counts the programs that hold nothing and stay connected
	quiet  chan struct{}  // closed when the programs in parked may end
}

func (r *run) seed() *rand.Rand { return rand.New(rand.NewPCG(r.rand.Uint64(), r.rand.Uint64())) }

// slewed returns the rate of a clock that may be slewed (see package clock).
func slewed(random *rand.Rand) float64 {
	switch random.IntN(3) {
	case 0:
		return 0.8995
	case 1:
		return 1.1005
	}
	return 0.8995 + 0.201*random.Float64()
}

// serve starts a server. Its clock is not slewed, but its timers are.
func (r *run) serve() {
	r.number++
	s := newServer(fmt.Sprint("s", r.number), r.store, 0.999+0.002*r.rand.Float64(), slewed(r.rand), r.seed())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers = append(r.servers, s)
	r.dead[s] = make(chan struct{})
}

func (r *run) some(random *rand.Rand) (*server, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.servers[random.IntN(len(r.servers))]
	return s, r.dead[s]
}

func (r *run) killOne() {
	r.mu.Lock()
	i := r.rand.IntN(len(r.servers))
	s := r.servers[i]
	r.servers = slices.Delete(r.servers, i, i+1)
	close(r.dead[s])
	r.mu.Unlock()
	s.kill()
}

func (r *run) trouble() {
	p := []float64{0, 0.02, 0.1, 0.3}[r.rand.IntN(4)]
	f := faults{refuse: p, silent: p / 2, nothing: p / 2, late: p / 2, later: 3 * time.Second,
		delay: []time.Duration{0, time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond}[r.rand.IntN(4)]}
	if r.rand.IntN(6) == 0 { // refuse all calls, which cuts the server off from the store
		f.refuse = 1
	}
	s, _ := r.some(r.rand)
	s.view.set(f)
}

// simulate runs the programs for some time, and returns the errors.
func simulate(t *testing.T, seed uint64) []string {
	var h *history
	synctest.Test(t, func(t *testing.T) {
		r := &run{history: &history{begin: time.Now()}, store: store.NewMemory(16),
			rand: rand.New(rand.NewPCG(seed, 17)), dead: map[*server]chan struct{}{},
			quiet: make(chan struct{})}
		for range 3 {
			r.serve()
		}
		ctx, stop := context.WithCancel(context.Background())
		var programs sync.WaitGroup
		for i := range 6 {
			random := r.seed()
			r.parked.Add(1)
			programs.Go(func() { r.program(ctx, i, random) })
		}
		for end := time.Now().Add(40 * time.Second); time.Now().Before(end); {
			time.Sleep(time.Duration(r.rand.Int64N(int64(3 * time.Second))))
			switch r.rand.IntN(8) {
			case 0:
				r.serve()
				r.killOne()
			default:
				r.trouble()
			}
		}
		for _, s := range r.servers {
			s.view.set(faults{})
		}
		stop()
		r.parked.Wait()
		r.sweep()
		for name, c := range kept(r.store, "ns") {
			if _, alive := kept(r.store, "ns")[leasePrefix+c.Lease.String()]; c.Kind == cell.Lock && alive {
				item, _ := r.store.Get(ctx, store.Key{Namespace: "ns", Name: name}, false)
				r.wrong("%s: nobody holds it by %d at %v, but for the lease %s that lives", name, item.Version.Sequence(),
					r.now(), c.Lease)
			}
		}
		close(r.quiet)
		programs.Wait()
		r.after()
		for _, s := range r.servers {
			s.kill()
		}
		synctest.Wait()
		h = r.history
	})
	return h.check(t)
}

// after checks the final state when all programs have ended. Every lock can be acquired in time,
// and nothing stays in the store.
func (r *run) after() {
	ctx := context.Background()
	s := r.servers[0]
	o := s.NewOwner()
	for _, name := range []string{"x", "y", "s"} {
		var a nodeapi.LockAnswer
		var err error
		begin := time.Now()
		in, cancel := context.WithTimeout(ctx, 5*limit)
		if name == "s" {
			a, err = s.Acquire(in, "ns", o, nodeapi.LockData{Name: name, Permits: 1})
		} else {
			a, err = s.Lock(in, "ns", o, nodeapi.LockData{Name: name})
		}
		cancel()
		if took := time.Since(begin); err != nil || !a.Held || took > limit {
			r.wrong("%s: a dead holder's is another's after %v, by %+v, %v", name, took, a, err)
		}
	}
	o.Close()
	r.sweep()
	for name, c := range kept(r.store, "ns") {
		r.wrong("%s is left: %+v", name, c)
	}
}

// sweep deletes all keys whose lease has expired.
func (r *run) sweep() {
	time.Sleep(4 * time.Second) // after this time, all delayed calls have been executed
	if err := r.servers[0].Sweep(context.Background(), "ns"); err != nil {
		r.wrong("%v", err)
	}
	time.Sleep(limit + 5*time.Second)
}

// limit is the maximum time until the lock of a dead holder can be acquired, by the slowest clock.
// It is the sum of the longest time to live, the margin, and some slack.
const limit = 3*time.Second*9/8*1001/899 + 2*time.Second

// program connects, and acquires, holds and releases locks until it dies or the test ends. At the
// end it stays connected without holding anything, until quiet is closed.
func (r *run) program(ctx context.Context, number int, random *rand.Rand) {
	stays := false
	for ctx.Err() == nil {
		s, dead := r.some(random)
		p := &client{r: r, s: s, dead: dead, rand: random, number: number, o: s.NewOwner()}
		p.run(ctx, func() {
			if ctx.Err() != nil && !p.died && !over(p.dead) {
				stays = true
				r.parked.Done()
				<-r.quiet
			}
		})
		p.o.Close()
	}
	if !stays {
		r.parked.Done()
	}
}

// client is the connection of a program to a server.
type client struct {
	r      *run
	s      *server
	o      *Owner
	dead   <-chan struct{}
	rand   *rand.Rand
	number int
	own    *ownLease // a lease that the program keeps alive itself; nil means the connection's lease
	died   bool
}

// ownLease is a lease that a program keeps alive itself.
type ownLease struct {
	id   string
	mu   sync.Mutex
	rate float64       // rate of the program's clock, which may be slewed
	sure time.Time     // time by the program's clock until which the lease is certainly alive
	gone chan struct{} // closed when the time sure has passed once
}

// lasts converts a duration to the program's clock.
func (o *ownLease) lasts(d time.Duration) time.Duration { return time.Duration(float64(d) / o.rate) }

// lost returns a channel that is closed when the program can no longer be sure that it holds the
// lock.
func (p *client) lost() <-chan struct{} {
	if p.own != nil {
		return p.own.gone
	}
	return p.o.Lost()
}

func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (p *client) within(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, d)
	stop := make(chan struct{})
	go func() {
		select {
		case <-p.dead:
			cancel()
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); cancel() }
}

// run acquires and releases one lock or permit after another. Then it waits, and its leases stay
// alive.
func (p *client) run(ctx context.Context, wait func()) {
	defer func() { wait() }()
	ttl := []int{500, 1000, 3000}[p.rand.IntN(3)]
	if p.rand.IntN(2) == 0 { // use a lease that the program keeps alive itself
		begin := time.Now()
		in, done := p.within(ctx, 5*time.Second)
		a, err := p.s.Grant(in, "ns", nodeapi.GrantData{TTLMillis: ttl})
		done()
		if err != nil {
			return
		}
		p.own = &ownLease{id: a.Lease, gone: make(chan struct{}), rate: slewed(p.rand)}
		p.own.sure = begin.Add(p.own.lasts(time.Duration(ttl) * time.Millisecond))
		end := make(chan struct{})
		var keeper sync.WaitGroup
		keeper.Go(func() { p.keep(end, time.Duration(ttl)*time.Millisecond, p.number%3 == 0) })
		whileConnected := wait
		wait = func() {
			whileConnected()
			close(end)
			keeper.Wait()
		}
	}
	for range 1 + p.rand.IntN(5) {
		if over(p.dead) || over(p.lost()) {
			p.died = true
		}
		if p.died || ctx.Err() != nil {
			return
		}
		name := []string{"x", "y", "s"}[p.rand.IntN(3)]
		var twin sync.WaitGroup
		if p.own != nil && p.rand.IntN(3) == 0 { // acquire two locks with the same lease, at two servers
			s, dead := p.r.some(p.rand)
			other := &client{r: p.r, s: s, dead: dead, rand: rand.New(rand.NewPCG(p.rand.Uint64(), 1)),
				number: p.number + 100, o: p.o, own: p.own}
			twin.Go(func() { other.take(ctx, ttl, name) })
			defer func() { p.died = p.died || other.died }()
		}
		p.take(ctx, ttl, name)
		twin.Wait()
	}
}

// keep keeps the program's own lease alive until end is closed, through any server. If `forgets` is
// true, it sometimes renews the lease late. The program is then not sure of the lease for some
// time, although the lease may be alive.
func (p *client) keep(end <-chan struct{}, ttl time.Duration, forgets bool) {
	random := rand.New(rand.NewPCG(uint64(p.number), uint64(p.r.now())))
	own := p.own
	var once sync.Once
	unsure := func() { once.Do(func() { close(own.gone) }) }
	defer unsure()
	key := store.Key{Namespace: "ns", Name: leasePrefix + own.id}
	for {
		pause := ttl / 3
		if forgets && random.IntN(3) == 0 {
			pause = ttl + time.Duration(random.Int64N(int64(ttl/2)))
		}
		timer := time.AfterFunc(time.Until(own.sure), unsure)
		select {
		case <-end:
			timer.Stop()
			return
		case <-time.After(pause):
		}
		begin := time.Now()
		there, _ := p.r.store.Get(context.Background(), key, false)
		s, dead := p.r.some(random)
		ctx, cancel := context.WithTimeout(context.Background(), ttl)
		go func() {
			select {
			case <-dead:
				cancel()
			case <-ctx.Done():
			}
		}()
		_, err := s.KeepAlive(ctx, "ns", nodeapi.LeaseData{Lease: own.id})
		cancel()
		timer.Stop()
		own.mu.Lock()
		late := time.Now().After(own.sure)
		if err == nil {
			own.sure = begin.Add(own.lasts(ttl))
		}
		own.mu.Unlock()
		if late {
			unsure()
		}
		if err == nil && !there.Found {
			p.r.wrong("the lease %s came back", own.id)
		}
		if errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeLeaseGone}) {
			if !late {
				p.r.wrong("the lease %s is gone at %v, although it was kept alive", own.id, p.r.now())
			}
			return
		}
	}
}

// take acquires a lock or permit, holds it for a while, and releases it. It skips the release if
// the program dies.
func (p *client) take(ctx context.Context, ttl int, name string) {
	d := nodeapi.LockData{Name: name, TTLMillis: ttl}
	if p.own != nil {
		d.Lease = p.own.id
	}
	if p.rand.IntN(2) == 0 {
		wait := p.rand.IntN(3) * 1000
		d.WaitMillis = &wait
	}
	in, done := p.within(ctx, 8*time.Second)
	defer done()
	from := p.r.now()
	var a nodeapi.LockAnswer
	var err error
	if name == "s" {
		d.Permits = 2
		a, err = p.s.Acquire(in, "ns", p.o, d)
	} else {
		a, err = p.s.Lock(in, "ns", p.o, d)
	}
	if err != nil || !a.Held {
		p.died = p.died || over(p.dead) // the program may have acquired the lock, and no program will release it
		return
	}
	token, _ := strconv.ParseUint(a.Token, 10, 64)
	what := name
	if name == "s" {
		what = fmt.Sprint("s/", token&(1<<permitBits-1))
	}
	p.r.call(p.number, taken{what, false, token}, from, outcome{})
	h := &hold{name: what, token: token, who: fmt.Sprintf("program %d at %s", p.number, p.s.name), from: p.r.now()}
	h.to = h.from
	p.r.history.mu.Lock()
	p.r.holds = append(p.r.holds, h)
	p.r.history.mu.Unlock()
	dies := p.rand.IntN(8) == 0
	if !over(p.lost()) && !over(p.dead) {
		select {
		case <-time.After(time.Duration(p.rand.Int64N(int64(4 * time.Second)))):
		case <-p.lost():
		case <-p.dead:
		}
		h.to = p.r.now()
	}
	if dies || over(p.dead) {
		p.died = true
		return
	}
	for !p.unlock(what, token, func() bool { return over(p.lost()) }) {
		if over(p.dead) {
			p.died = true
			return
		}
		time.Sleep(time.Second)
	}
	if p.rand.IntN(3) == 0 { // try to release with an old token, too
		p.unlock(what, token, func() bool { return true })
	}
}

// unlock releases a lock with a token. It reports whether the token is certainly invalid
// afterwards.
func (p *client) unlock(what string, token uint64, lapsed func() bool) bool {
	s := p.s
	if p.rand.IntN(3) == 0 {
		s, _ = p.r.some(p.rand)
	}
	in, done := p.within(context.Background(), 5*time.Second)
	defer done()
	from := p.r.now()
	name, permit, _ := strings.Cut(what, "/")
	d := nodeapi.UnlockData{Name: name, Token: fmt.Sprint(token)}
	var err error
	if permit != "" {
		err = s.Release(in, "ns", d)
	} else {
		err = s.Unlock(in, "ns", d)
	}
	notHeld := errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeNotHeld})
	p.r.call(p.number, taken{what, true, token}, from, outcome{notHeld, err != nil && !notHeld, lapsed()})
	return err == nil || notHeld
}

// TestHistories checks that a lock or permit has only one holder at a time, and that tokens grow. A
// holder that renews its lease must keep the lock. The lock of a dead holder must become available
// in time. At the end no keys may be left.
func TestHistories(t *testing.T) {
	seeds := uint64(25)
	if racedetector.Enabled {
		seeds = 8
	}
	for seed := range seeds {
		if broken := simulate(t, seed); len(broken) > 0 {
			t.Fatalf("seed %d: %s", seed, strings.Join(broken[:min(len(broken), 10)], "\n"))
		}
	}
}
