package p4rtserver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// Local gives servers of other protocols in this process access to the state that P4Runtime serves.
// P4Runtime's controllers can read, change and delete objects that these servers created, and vice
// versa. Unlike a controller, these servers need no arbitration and no P4Info.
type Local struct{ s *Server }

// Local returns the server's state for servers of other protocols.
func (s *Server) Local() *Local { return &Local{s} }

// Start makes the device run prog, whose source is json. There is no P4Info, so P4Runtime has no
// configuration until a controller pushes one.
func (s *Server) Start(prog *bmv2json.Program, json []byte) error {
	s.state.Lock()
	defer s.state.Unlock()
	return s.start(prog, json)
}

func (s *Server) start(prog *bmv2json.Program, json []byte) error {
	if err := s.dev.Commit(prog); err != nil {
		return err
	}
	s.goLive(nil)
	s.source = json
	s.program.Store(prog)
	return nil
}

// Read calls f with the pipeline to which requests refer. This is a loaded program that does not
// run yet, or otherwise the running program. No protocol writes meanwhile.
func (l *Local) Read(f func(target.Pipeline) error) error {
	l.s.state.Lock()
	defer l.s.state.Unlock()
	pipe := l.pipeline()
	if pipe == nil {
		return target.ErrNoPipeline
	}
	return f(pipe)
}

// Write calls f as Read does, for calls that make changes. When it returns, the changes apply to
// every packet (see [target.Pipeline]).
func (l *Local) Write(f func(target.Pipeline) error) error {
	return l.Read(func(p target.Pipeline) error {
		return errors.Join(f(p), p.Barrier())
	})
}

// pipeline returns the pipeline to which calls refer, or nil if there is none.
func (l *Local) pipeline() target.Pipeline {
	s := l.s
	switch {
	case s.loaded != nil:
		return s.loaded
	case s.saved != nil:
		return &local{s.saved.pipe, s.saved}
	case s.live != nil:
		return &local{s.live.pipe, s.live}
	}
	return s.dev.Pipeline()
}

// Load prepares a program while another program is running, as VERIFY_AND_SAVE does, but without a
// P4Info. Until Swap, calls refer to the loaded program, while packets use the running program.
func (l *Local) Load(json []byte) error {
	prog, err := bmv2json.Parse(json)
	if err != nil {
		return fmt.Errorf("the program: %w", err)
	}
	s := l.s
	s.state.Lock()
	defer s.state.Unlock()
	p, ok := s.dev.(target.Preparer)
	if !ok {
		return fmt.Errorf("preparing a program beside the running one: %w", target.ErrUnsupported)
	}
	pipe, err := p.Prepare(prog)
	if err != nil {
		return err
	}
	s.loaded, s.loadedSource = pipe, slices.Clone(json)
	return nil
}

// Swap makes the loaded program the running program. P4Runtime then has no configuration.
func (l *Local) Swap() error {
	s := l.s
	s.state.Lock()
	defer s.state.Unlock()
	if s.loaded == nil {
		return target.ErrNothingLoaded
	}
	if err := s.dev.(target.Preparer).Activate(s.loaded, nil); err != nil {
		return err
	}
	source, prog := s.loadedSource, s.loaded.Program()
	s.goLive(nil)
	s.source = source
	s.program.Store(prog)
	return nil
}

// Reset restarts the running program with empty state.
func (l *Local) Reset() error {
	s := l.s
	s.state.Lock()
	defer s.state.Unlock()
	if s.live != nil {
		return s.replace(s.live.pushed, always)
	}
	pipe := s.dev.Pipeline()
	if pipe == nil {
		return target.ErrNoPipeline
	}
	// The source is parsed again, because callers distinguish pipelines by the pointer to their
	// program.
	prog, err := bmv2json.Parse(s.source)
	if err != nil {
		return err
	}
	return s.start(prog, s.source)
}

// Source returns the BMv2 JSON of the program to which calls refer, or nil if there is none.
func (l *Local) Source() []byte {
	s := l.s
	s.state.RLock()
	defer s.state.RUnlock()
	switch {
	case s.loaded != nil:
		return s.loadedSource
	case s.saved != nil:
		return s.saved.source()
	case s.live != nil:
		return s.live.source()
	}
	return s.source
}

func (c *config) source() []byte {
	// this cannot fail, because the configuration was parsed before
	json, _ := deviceConfig(c.pushed.P4DeviceConfig)
	return json
}

// OnReplication sets a function that is called when P4Runtime has changed multicast groups or clone
// sessions. The call and the change are one step for other calls.
func (l *Local) OnReplication(f func(target.Pipeline)) {
	l.s.state.Lock()
	defer l.s.state.Unlock()
	l.s.onReplication = f
}

// OnDigest sets a function that receives the digests of the running program. P4Runtime's
// controllers receive them, too. f must not block.
func (l *Local) OnDigest(f func(*bmv2json.Program, target.Digest)) { l.s.onDigest.Store(&f) }

// OnIdle sets a function that receives the entries of the running pipeline that no packet has hit
// for their idle timeout. P4Runtime's controllers receive them, too. f may read the pipeline's
// entries.
func (l *Local) OnIdle(f func(target.Pipeline, []target.IdleEntry)) {
	l.s.state.Lock()
	defer l.s.state.Unlock()
	l.s.onIdle = f
}

// SetIdleTimeout sets the idle timeout of an entry of p, a pipeline that Write passed to f. The
// error wraps ErrUnsupported if the engine or the table does not support idle timeouts.
func (l *Local) SetIdleTimeout(p target.Pipeline, table string, e *target.TableEntry,
	timeout time.Duration) error {
	a := agerOf(p)
	if a == nil {
		return errNoTimeouts
	}
	if err := a.SetIdleTimeout(table, e, timeout, l.s.dev.Now()); err != nil {
		return err
	}
	if timeout > 0 {
		l.s.sweepSoon()
	}
	return nil
}

// IdleTimeout returns an entry's idle timeout, and the time since a packet last hit the entry.
func (l *Local) IdleTimeout(p target.Pipeline, table string,
	e *target.TableEntry) (timeout, since time.Duration, err error) {
	a := agerOf(p)
	if a == nil {
		return 0, 0, errNoTimeouts
	}
	return a.IdleTimeout(table, e, l.s.dev.Now())
}

// toldOfReplication reports updates of the packet replication engine to other protocols.
func (s *Server) toldOfReplication(c *config, updates []*p4v1.Update) {
	if s.onReplication == nil || !slices.ContainsFunc(updates, func(u *p4v1.Update) bool {
		return u.GetEntity().GetPacketReplicationEngineEntry() != nil
	}) {
		return
	}
	s.onReplication(&local{c.pipe, c})
}

// local is a pipeline that also records changes in the data that the server stores for P4Runtime.
type local struct {
	target.Pipeline
	c *config
}

// Unwrap returns the pipeline itself. It is for objects that P4Runtime does not track.
func (l *local) Unwrap() target.Pipeline { return l.Pipeline }

func (l *local) table(name string) *translate.Table {
	for _, t := range l.c.TableOrder {
		if t.Name == name {
			return t
		}
	}
	return nil // the table is hidden from the control plane
}

func (l *local) actionProfile(name string) (*translate.ActionProfile, *actionProfileState) {
	for _, p := range l.c.ProfileOrder {
		if p.Name == name {
			return p, l.c.actionProfileStates[p.ID]
		}
	}
	return nil, nil
}

// noOneShots refuses changes that would mix members and groups with P4Runtime's one-shot action
// sets.
func noOneShots(p *translate.ActionProfile, st *actionProfileState) error {
	if st != nil && st.oneShots > 0 {
		return fmt.Errorf(
			"action selector %s is programmed with P4Runtime's one shots; it cannot have members and groups of others: %w",
			p.Name, target.ErrInvalid)
	}
	return nil
}

func (l *local) check(t *translate.Table, e *target.TableEntry) error {
	if t == nil {
		return nil
	}
	if t.ActionProfile != nil {
		if err := noOneShots(t.ActionProfile, l.c.actionProfileStates[t.ActionProfile.ID]); err != nil {
			return err
		}
	}
	if err := translate.CheckRestrictions("table "+t.Name, t.Restrictions, &translate.Subject{Match: e.Match,
		Priority: e.Priority}); err != nil {
		return fmt.Errorf("%s: %w", translate.Canonical(err).Message(), target.ErrInvalid)
	}
	return l.checkCall(e.Action)
}

func (l *local) checkCall(call *target.ActionCall) error {
	if call == nil {
		return nil
	}
	if a := l.c.ActionOf(call); a != nil {
		if _, err := l.c.Call(a); err != nil {
			return fmt.Errorf("%s: %w", translate.Canonical(err).Message(), target.ErrInvalid)
		}
	}
	return nil
}

// InsertEntry implements [target.Pipeline].
func (l *local) InsertEntry(name string, e *target.TableEntry) error {
	t := l.table(name)
	if err := l.check(t, e); err != nil {
		return err
	}
	if err := l.Pipeline.InsertEntry(name, e); err != nil || t == nil {
		return err
	}
	l.c.entries[t][translate.MatchKey(e.Match, e.Priority)] = &entryState{spec: e}
	l.c.refer(t, e, nil, 1)
	return l.c.startIdle(t, e)
}

// ModifyEntry implements [target.Pipeline].
func (l *local) ModifyEntry(name string, e *target.TableEntry) error {
	t := l.table(name)
	if err := l.check(t, e); err != nil {
		return err
	}
	if err := l.Pipeline.ModifyEntry(name, e); err != nil || t == nil {
		return err
	}
	k := translate.MatchKey(e.Match, e.Priority)
	if old := l.c.entries[t][k]; old != nil {
		l.c.refer(t, old.spec, old.oneShot, -1)
		old.spec = e
	} else {
		l.c.entries[t][k] = &entryState{spec: e}
	}
	l.c.refer(t, e, nil, 1)
	return nil
}

// DeleteEntry implements [target.Pipeline].
func (l *local) DeleteEntry(name string, e *target.TableEntry) error {
	t := l.table(name)
	if err := l.Pipeline.DeleteEntry(name, e); err != nil || t == nil {
		return err
	}
	k := translate.MatchKey(e.Match, e.Priority)
	if old := l.c.entries[t][k]; old != nil {
		delete(l.c.entries[t], k)
		l.c.refer(t, old.spec, old.oneShot, -1)
		l.c.dropOneShot(t, old.oneShot)
	}
	return nil
}

// SetDefault implements [target.Pipeline].
func (l *local) SetDefault(name string, e *target.TableEntry) error {
	t := l.table(name)
	if e != nil {
		if err := l.checkCall(e.Action); err != nil {
			return err
		}
	}
	if err := l.Pipeline.SetDefault(name, e); err != nil || t == nil {
		return err
	}
	if e == nil || e.Action == nil {
		delete(l.c.defaults, t)
	} else {
		l.c.defaults[t] = &defaultState{}
	}
	return nil
}

// SetMember implements [target.Pipeline].
func (l *local) SetMember(name string, id uint32, a *target.ActionCall, insert bool) error {
	p, st := l.actionProfile(name)
	if err := noOneShots(p, st); err != nil {
		return err
	}
	if err := l.checkCall(a); err != nil {
		return err
	}
	if err := l.Pipeline.SetMember(name, id, a, insert); err != nil || p == nil {
		return err
	}
	st.members[id] = &p4v1.ActionProfileMember{ActionProfileId: p.ID, MemberId: id,
		Action: l.c.ActionOf(a)}
	return nil
}

// DeleteMember implements [target.Pipeline].
func (l *local) DeleteMember(name string, id uint32) error {
	p, st := l.actionProfile(name)
	if err := noOneShots(p, st); err != nil {
		return err
	}
	// This includes groups that contain the member but leave it out at present.
	if p != nil && st.memberUses[id] > 0 {
		return fmt.Errorf("member %d of action profile %q is in use: %w", id, name,
			target.ErrInvalid)
	}
	if err := l.Pipeline.DeleteMember(name, id); err != nil || p == nil {
		return err
	}
	delete(st.members, id)
	return nil
}

// SetGroup implements [target.Pipeline].
func (l *local) SetGroup(name string, id uint32, members []target.WeightedMember,
	insert bool) error {
	p, st := l.actionProfile(name)
	if err := noOneShots(p, st); err != nil {
		return err
	}
	if err := l.Pipeline.SetGroup(name, id, members, insert); err != nil || p == nil {
		return err
	}
	delete(l.c.followers, followerKey{name, id})
	g := &p4v1.ActionProfileGroup{ActionProfileId: p.ID, GroupId: id}
	if old := st.groups[id]; old != nil {
		st.countGroup(old, -1)
		g.MaxSize = old.MaxSize
	}
	for _, m := range members {
		g.Members = append(g.Members, &p4v1.ActionProfileGroup_Member{MemberId: m.Member,
			Weight: int32(m.Weight)})
	}
	st.groups[id] = g
	st.countGroup(g, 1)
	return nil
}

// DeleteGroup implements [target.Pipeline].
func (l *local) DeleteGroup(name string, id uint32) error {
	p, st := l.actionProfile(name)
	if err := noOneShots(p, st); err != nil {
		return err
	}
	if err := l.Pipeline.DeleteGroup(name, id); err != nil || p == nil {
		return err
	}
	delete(l.c.followers, followerKey{name, id})
	if old := st.groups[id]; old != nil {
		st.countGroup(old, -1)
		delete(st.groups, id)
	}
	return nil
}

// replicasOf converts replicas to P4Runtime's form.
func replicasOf(in []target.Replica) []*p4v1.Replica {
	var out []*p4v1.Replica
	for _, r := range in {
		port := []byte{byte(r.Port >> 24), byte(r.Port >> 16), byte(r.Port >> 8), byte(r.Port)}
		out = append(out, &p4v1.Replica{PortKind: &p4v1.Replica_Port{Port: translate.Shorten(port)},
			Instance: uint32(r.Instance)})
	}
	return out
}

// SetMulticastGroup implements [target.Pipeline].
func (l *local) SetMulticastGroup(id uint32, replicas []target.Replica) error {
	if err := l.Pipeline.SetMulticastGroup(id, replicas); err != nil {
		return err
	}
	delete(l.c.followers, followerKey{inMulticast, id})
	if replicas == nil {
		delete(l.c.multicast, id)
	} else {
		l.c.multicast[id] = &p4v1.MulticastGroupEntry{MulticastGroupId: id,
			Replicas: replicasOf(replicas)}
	}
	return nil
}

// SetCloneSession implements [target.Pipeline]. P4Runtime cannot name session 0.
func (l *local) SetCloneSession(id uint32, s *target.CloneSession) error {
	if err := l.Pipeline.SetCloneSession(id, s); err != nil || id == 0 {
		return err
	}
	delete(l.c.followers, followerKey{inClones, id})
	if s == nil {
		delete(l.c.clones, id)
		return nil
	}
	l.c.clones[id] = &p4v1.CloneSessionEntry{SessionId: id, Replicas: replicasOf(s.Replicas),
		ClassOfService: s.ClassOfQueue, PacketLengthBytes: int32(s.TruncateTo)}
	return nil
}
