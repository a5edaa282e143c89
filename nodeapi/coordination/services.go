package coordination

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Nearest is the order in which the instances on this node come first.
const Nearest = "nearest"

// idleView is how long a Service continues to follow a service after the last request for the
// service.
const idleView = time.Minute

// showLife lists the delays after which the lease of a new instance is renewed early. By that time
// the followers of the service know the instance. They report the instance once they have seen a
// renewal.
var showLife = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 750 * time.Millisecond}

// grace is how long the first caller waits for further instances to show that they are alive, after
// some instances have done so.
const grace = 100 * time.Millisecond

// instanceKey returns the key of an instance of a service. If instance is "", it returns the common
// prefix of the keys of all instances.
func instanceKey(ns, service, instance string) (store.Key, error) {
	key, err := named(ns, servicePrefix, "service", service, 1)
	if err != nil {
		return key, err
	}
	if strings.Contains(instance, "/") {
		return key, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", "the name of an instance has no slash: %q", instance)
	}
	if room := nodeapi.MaxKeyName - len(key.Name) - 1; len(instance) > room {
		return key, nodeapi.Errorf(nodeapi.CodeTooLarge, "choose a shorter one",
			"behind the service's name, that of an instance has at most %d bytes, not %d", room, len(instance))
	}
	key.Name += "/" + instance
	return key, nil
}

// RegisterService registers an instance of a service for as long as its lease lives. It replaces an
// instance with the same name. The owner o belongs to the connection. It is needed if d names no
// lease.
func (s *Service) RegisterService(ctx context.Context, ns string, o *Owner, d nodeapi.ServiceData) (nodeapi.Instance,
	error) {
	if d.Instance == "" {
		var id cell.LeaseID
		draw(id[:])
		d.Instance = id.String()
	}
	if d.Address != "" {
		if _, _, err := net.SplitHostPort(d.Address); err != nil {
			return nodeapi.Instance{}, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "write host:port", "the address: %v", err)
		}
	}
	key, err := instanceKey(ns, d.Service, d.Instance)
	if err == nil {
		err = s.fits(ns, "the address", cell.Instance, []byte(d.Address))
	}
	if err != nil {
		return nodeapi.Instance{}, err
	}
	var k leaseKey
	switch {
	case d.Lease != "":
		k, err = parseLease(ns, d.Lease)
	case o == nil:
		err = nodeapi.Errorf(nodeapi.CodeInvalidArgument, "name a lease", "there is no lease, and no connection to make one for")
	default:
		k, err = o.lease(ctx, ns, d.TTLMillis)
	}
	if err != nil {
		return nodeapi.Instance{}, err
	}
	switch alive, err := s.alive(ctx, k, key, false); {
	case err != nil:
		return nodeapi.Instance{}, err
	case !alive:
		return nodeapi.Instance{}, leaseGone(k)
	}
	c := cell.Cell{Kind: cell.Instance, Lease: k.id, Value: []byte(d.Address)}
	item, err := s.store.Get(ctx, key, false)
	for written := false; err == nil && !written; {
		item, written, err = s.swap(ctx, key, item.Version, c.Encode())
	}
	s.bind(k, key)
	if err != nil {
		return nodeapi.Instance{}, err
	}
	if v := s.following(ns, d.Service); v != nil {
		v.written(item)
	}
	if o != nil && o.has(k) {
		s.keepOnNudge(ns, d.Service, o, k)
		s.loop(func() {
			for _, d := range showLife {
				if !s.sleep(o.ctx, d) {
					return
				}
				o.nudge(k)
			}
		})
	}
	return nodeapi.Instance{Instance: d.Instance, Address: d.Address, Node: s.node, Lease: k.id.String()}, nil
}

// DeregisterService removes an instance of a service. The instance must have been registered by
// this connection, or be bound to the lease in d. It is not an error if the instance does not exist
// any longer.
func (s *Service) DeregisterService(ctx context.Context, ns string, o *Owner, d nodeapi.ServiceData) error {
	key, err := instanceKey(ns, d.Service, d.Instance)
	if err != nil {
		return err
	}
	if d.Instance == "" {
		return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "use the one that registerService has answered", "an instance needs a name")
	}
	item, err := s.store.Get(ctx, key, false)
	if err != nil || !item.Found {
		return err
	}
	c, err := cell.Decode(item.Value)
	k := leaseKey{ns, c.Lease}
	if err != nil || d.Lease != k.id.String() && (d.Lease != "" || o == nil || !o.has(k)) {
		return nodeapi.Errorf(nodeapi.CodeNotHeld, "name its lease", "the instance %q of %q was registered by somebody else",
			d.Instance, d.Service)
	}
	err = s.giveBack(ctx, key, item.Version)
	if err != nil && !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeNotHeld}) {
		return err
	}
	// The instance was removed, or another instance with the same name has replaced it.
	if v := s.following(ns, d.Service); v != nil {
		// if this read fails, the view's watch reports the change
		if item, err := s.store.Get(ctx, key, false); err == nil {
			v.written(item)
		}
	}
	return nil
}

// following returns this Service's view of a service, or nil if there is none.
func (s *Service) following(ns, service string) *view {
	prefix, err := instanceKey(ns, service, "")
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views[prefix]
}

// written records an instance that this Service has just written or removed. The watch may report
// such a change late.
func (v *view) written(item store.Item) {
	v.take(item)
	v.rouse()
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	if v.ready {
		v.update()
	}
}

// GetService returns the instances that are alive. If this Service was not asked for the service
// recently, it does not know the instances at once. GetService then waits until an instance has
// shown that it is alive, or until it is clear that none will.
func (s *Service) GetService(ctx context.Context, ns string, d nodeapi.GetServiceData) (nodeapi.ServiceAnswer, error) {
	answer := nodeapi.ServiceAnswer{Service: d.Service, Instances: []nodeapi.Instance{}}
	if d.Order != "" && d.Order != Nearest {
		return answer, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "leave it out, or say "+Nearest, "there is no order %q", d.Order)
	}
	v, err := s.view(ns, d.Service)
	if err != nil {
		return answer, err
	}
	defer v.leave()
	state, err := v.settled(ctx)
	if err != nil {
		return answer, err
	}
	if n := len(state.live); n > 0 {
		first := v.turn(n)
		answer.Instances = append(append(answer.Instances, state.live[first:]...), state.live[:first]...)
	}
	if d.Order == Nearest {
		slices.SortStableFunc(answer.Instances, func(a, b nodeapi.Instance) int {
			return cmp.Compare(s.distance(a), s.distance(b))
		})
	}
	return answer, nil
}

func (s *Service) distance(i nodeapi.Instance) int {
	if i.Node == s.node {
		return 0
	}
	return 1
}

// WatchService reports the live instances of a service at the beginning and after each change,
// until ctx ends.
func (s *Service) WatchService(ctx context.Context, ns, service string, tell func(nodeapi.ServiceAnswer)) error {
	v, err := s.view(ns, service)
	if err != nil {
		return err
	}
	defer v.leave()
	state, err := v.settled(ctx)
	for err == nil {
		told := state.live
		tell(nodeapi.ServiceAnswer{Service: service, Instances: slices.Clone(told)})
		for err == nil && slices.Equal(state.live, told) {
			select {
			case <-state.next:
				state = v.now()
			case <-ctx.Done():
				err = ctx.Err()
			case <-s.ctx.Done():
				err = nodeapi.Errorf(nodeapi.CodeDraining, "connect again", "the server is shutting down")
			}
		}
	}
	return err
}

// view is what this Service knows about a service that is in use. It has the instances, which it
// learns from a watch of their keys. It also follows the lease of each instance.
type view struct {
	s      *Service
	prefix store.Key
	ctx    context.Context
	stop   context.CancelFunc
	poke   chan struct{} // receives a value when a lease has changed
	taking sync.Mutex    // serializes calls of take

	// Service.mu guards the following fields.
	users   int
	unused  func() bool
	turns   int
	nudged  bool
	read    bool  // the initial state was read completely
	err     error // why the initial state could not be read
	ready   bool  // the fields state and settles were updated after the initial state was read
	known   map[string]*instance
	settles bool // callers should wait until an instance is known to be alive, or until the time grace has passed
	born    time.Time
	state   viewState
}

// viewState is the result of a view. It is valid until next is closed.
type viewState struct {
	live  []nodeapi.Instance
	until time.Time // time until which no instance can have expired
	next  chan struct{}
}

type instance struct {
	version wire.Version
	cell    cell.Cell
	user    *user // follows the lease of the instance; nil if the instance does not exist
}

// view finds the view of a service, and starts it if necessary. The caller must call leave when it
// no longer uses the view.
func (s *Service) view(ns, service string) (*view, error) {
	prefix, err := instanceKey(ns, service, "")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nodeapi.Errorf(nodeapi.CodeDraining, "connect again", "the server is shutting down")
	}
	v := s.views[prefix]
	if v == nil {
		v = &view{s: s, prefix: prefix, poke: make(chan struct{}, 1), known: map[string]*instance{},
			born: s.clock.Now(), state: viewState{live: []nodeapi.Instance{}, next: make(chan struct{})}}
		v.ctx, v.stop = context.WithCancel(s.ctx)
		s.views[prefix] = v
		s.work.Go(v.watch)
		s.work.Go(v.run)
	}
	v.users++
	if v.unused != nil {
		v.unused()
		v.unused = nil
	}
	return v, nil
}

// leave ends the use of a view. A view without users is closed after some time.
func (v *view) leave() {
	s := v.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.users--; v.users > 0 || s.closed {
		return
	}
	v.unused = s.clock.AfterFunc(idleView, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if v.users == 0 && s.views[v.prefix] == v {
			delete(s.views, v.prefix)
			v.stop()
		}
	})
}

func (v *view) turn(n int) int {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	v.turns++
	return v.turns % n
}

func (v *view) now() viewState {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	return v.state
}

// settled waits until some instance is known to be alive, or until it is known that no instance is
// alive.
func (v *view) settled(ctx context.Context) (viewState, error) {
	for {
		v.s.mu.Lock()
		// this can happen, for example, when the process was suspended
		if v.ready && !v.s.clock.Now().Before(v.state.until) {
			v.update()
		}
		state, ready, settles, err := v.state, v.ready, v.settles, v.err
		v.s.mu.Unlock()
		if ready && !settles {
			return state, nil
		}
		select {
		case <-state.next:
		case <-v.s.ctx.Done():
			return state, nodeapi.Errorf(nodeapi.CodeDraining, "connect again", "the server is shutting down")
		case <-ctx.Done():
			if err != nil {
				return state, err
			}
			return state, ended(ctx, "waiting for an instance to show that it lives")
		}
	}
}

// watch follows the keys of the instances until the view ends.
func (v *view) watch() {
	for pause := (pauses{s: v.s}); ; {
		err := v.s.store.Watch(v.ctx, store.Watch{Namespace: v.prefix.Namespace, Prefix: &v.prefix.Name},
			func(changes []store.Change) {
				for _, c := range changes {
					v.take(c.Item)
				}
				v.rouse()
			})
		v.s.mu.Lock()
		v.err = err
		v.s.mu.Unlock()
		if !pause.wait(v.ctx) {
			return
		}
	}
}

// readAll reads all existing instances. It is needed because a watch does not say when it has
// reported all existing keys.
func (v *view) readAll() error {
	keys, err := v.s.store.List(v.ctx, v.prefix.Namespace, v.prefix.Name)
	if err != nil {
		return err
	}
	for _, key := range keys {
		item, err := v.s.store.Get(v.ctx, key, false)
		if err != nil {
			return err
		}
		v.take(item)
	}
	return nil
}

// take processes the state of an instance's key.
func (v *view) take(item store.Item) {
	name := strings.TrimPrefix(item.Key.Name, v.prefix.Name)
	// ignore the key if it belongs to a service whose name only begins with this service's name
	if name == "" || strings.Contains(name, "/") {
		return
	}
	c, err := cell.Decode(item.Value)
	there := item.Found && err == nil && c.Kind == cell.Instance
	v.taking.Lock()
	defer v.taking.Unlock()
	if v.ctx.Err() != nil {
		return
	}
	v.s.mu.Lock()
	i := v.known[name]
	if i == nil {
		i = &instance{}
		v.known[name] = i
	}
	if i.version >= item.Version && item.Version != 0 {
		v.s.mu.Unlock()
		return
	}
	before := i.user
	i.version, i.cell, i.user = item.Version, c, nil
	if !there && v.read { // delete the entry, because no older state of the key can arrive any more
		delete(v.known, name)
	}
	v.s.mu.Unlock()
	if there {
		k := leaseKey{v.prefix.Namespace, c.Lease}
		u := v.s.follow(k, true, func(bool) { v.rouse() })
		v.s.note(k, item.Key)
		v.s.mu.Lock()
		i.user = u
		v.s.mu.Unlock()
	}
	if before != nil {
		v.s.unfollow(before)
	}
}

func (v *view) rouse() {
	select {
	case v.poke <- struct{}{}:
	default:
	}
}

// run updates the state of the view until the view ends.
func (v *view) run() {
	var mine sync.WaitGroup
	mine.Go(func() {
		for pause := (pauses{s: v.s}); ; {
			err := v.readAll()
			v.s.mu.Lock()
			v.read, v.err = err == nil, err
			v.s.mu.Unlock()
			v.rouse()
			if err == nil || !pause.wait(v.ctx) {
				return
			}
		}
	})
	for ok := true; ok; {
		v.s.mu.Lock()
		wait := v.update()
		v.s.mu.Unlock()
		ok = v.s.sleepUntil(v.ctx, wait, v.poke)
	}
	mine.Wait()
	v.taking.Lock()
	defer v.taking.Unlock()
	for _, i := range v.known {
		if i.user != nil {
			v.s.unfollow(i.user)
		}
	}
}

// update determines which instances are alive, and until when this cannot change by itself. An
// instance counts as alive for the time to live of its lease, measured from a time before the last
// write of the lease. So even if news arrives late, an instance that has been dead for longer is
// never reported. The caller holds s.mu.
func (v *view) update() time.Duration {
	s := v.s
	now := s.clock.Now()
	live, settles, unread, wait, until := []nodeapi.Instance{}, false, false, time.Hour, time.Hour
	for name, i := range v.known {
		if i.user == nil {
			continue
		}
		l := i.user.lease
		if s.leases[l.key] != l { // skip the instance, because its lease has ended
			continue
		}
		switch {
		case l.asking:
		case now.Before(l.ask):
			wait = min(wait, l.ask.Sub(now))
		case !s.closed:
			l.asking = true
			s.work.Go(func() { s.asked(v.ctx, l) })
		}
		since := l.lives
		if since.IsZero() {
			since = l.since
		}
		rest := since.Add(l.ttl).Sub(now)
		switch {
		case l.version == 0 || l.lives.IsZero() && l.newest.IsZero():
			settles, unread = true, true
			continue
		case rest <= 0:
			continue
		case !l.lives.IsZero():
			at, _ := s.nodeOf(l.mark)
			live = append(live, nodeapi.Instance{Instance: name, Address: string(i.cell.Value), Node: at})
			until = min(until, rest)
		default:
			settles = true
		}
		wait = min(wait, rest)
	}
	slices.SortFunc(live, func(a, b nodeapi.Instance) int { return strings.Compare(a.Instance, b.Instance) })
	// the watches of the leases will report the result of the nudge
	if v.read && settles && !unread && !v.nudged && !s.closed {
		v.nudged = true
		s.work.Go(v.nudge)
	}
	if rest := v.born.Add(grace).Sub(now); rest > 0 {
		wait = min(wait, rest)
	} else if len(live) > 0 {
		settles = false
	}
	v.ready, v.settles, v.state.live, v.state.until = v.read, settles, live, now.Add(until)
	close(v.state.next)
	v.state.next = make(chan struct{})
	return wait
}

// nudge asks the servers of instances to renew their leases at once, which shows that the instances
// are alive. If this fails, the next regular renewal shows it.
func (v *view) nudge() {
	key := nudgeKey(v.prefix)
	if _, err := v.s.store.Put(v.ctx, key, cell.Cell{}.Encode()); err == nil {
		_, _ = v.s.store.Delete(v.ctx, key)
	}
}

func nudgeKey(prefix store.Key) store.Key {
	return store.Key{Namespace: prefix.Namespace, Name: nudgePrefix + strings.TrimPrefix(prefix.Name, servicePrefix)}
}

// keeping has the leases that are renewed at once when a service is nudged. Service.mu guards it.
type keeping struct {
	leases map[leaseKey]*Owner
}

// keepOnNudge renews a lease at once whenever its service is nudged, as long as the Owner keeps the
// lease alive.
func (s *Service) keepOnNudge(ns, service string, o *Owner, lease leaseKey) {
	prefix, err := instanceKey(ns, service, "")
	if err != nil {
		return
	}
	key := nudgeKey(prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keeps[key]
	if k != nil {
		k.leases[lease] = o
		return
	}
	if s.closed {
		return
	}
	k = &keeping{leases: map[leaseKey]*Owner{lease: o}}
	s.keeps[key] = k
	s.work.Go(func() { s.answerNudges(key, k) })
}

// answerNudges watches the nudges of a service as long as an instance of the service is registered
// here.
func (s *Service) answerNudges(key store.Key, k *keeping) {
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	answer := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for lease, o := range k.leases {
			if o.ctx.Err() != nil || !o.has(lease) {
				delete(k.leases, lease)
			}
			o.nudge(lease)
		}
		if len(k.leases) == 0 {
			delete(s.keeps, key)
			stop()
		}
	}
	for pause := (pauses{s: s}); ; {
		_ = s.store.Watch(ctx, store.Watch{Namespace: key.Namespace, Keys: []string{key.Name}},
			func([]store.Change) { answer() })
		if !pause.wait(ctx) {
			return
		}
		answer()
	}
}
