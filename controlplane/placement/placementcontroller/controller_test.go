package placementcontroller

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

const prefix = placement.DefaultPrefix

// quick returns limits for tests, with short times.
func quick() policy.Limits {
	l := policy.DefaultLimits()
	l.AdmitAfter, l.MinResidency, l.Cooldown, l.Retry, l.MovesPerMinute = 0, 0, 0, time.Hour, 1e6
	return l
}

// rig is the environment of controllers under test, and outlives them.
type rig struct {
	t      *testing.T
	etcd   *clientv3.Client
	nw     *fakeNetwork
	source *fakeSource
	limits policy.Limits
	conds  []clientv3.Cmp
	p      *Controller
}

func newRig(t *testing.T, cell int, slots ...int) *rig {
	return &rig{t: t, etcd: etcdtest.Client(t, etcdtest.Start(t)), nw: newNetwork(t, cell, slots...),
		source: &fakeSource{}, limits: quick()}
}

// run starts a controller, and stops it at the end of the test or by stop.
func (r *rig) run(step func(string) error) (stop func()) {
	r.t.Helper()
	p, err := New(Options{Network: r.nw, Source: r.source, Etcd: r.etcd, Prefix: prefix,
		Conditions: r.conds, Limits: r.limits, Interval: 20 * time.Millisecond,
		Log: quiet(), step: step, tryAgain: 100 * time.Millisecond, dictionaryRest: 50 * time.Millisecond})
	if err != nil {
		r.t.Fatal(err)
	}
	r.p = p
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) put(key, value string, opts ...clientv3.OpOption) int64 {
	r.t.Helper()
	resp, err := r.etcd.Put(r.t.Context(), key, value, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.Header.Revision
}

// entries returns the placed keys according to etcd.
func (r *rig) entries() map[string]wire.Key {
	r.t.Helper()
	all, broken, _, err := placement.Store{KV: r.etcd, Prefix: prefix}.List(r.t.Context())
	if err != nil || len(broken) > 0 {
		r.t.Fatal(err, broken)
	}
	out := map[string]wire.Key{}
	for k, e := range all {
		out[k] = wire.Key(e.ID)
	}
	return out
}

// until waits until the function so returns true.
func (r *rig) until(what string, so func() bool) {
	r.t.Helper()
	poll.Until(r.t, 20*time.Second, what, so, func() string {
		show, _ := r.p.Show(context.Background())
		return fmt.Sprintf("placed %v\nin the switches %v\nshown %+v\nevents\n%s", r.entries(), r.nw.inSwitches(), show, strings.Join(r.nw.events, "\n"))
	})
}

// placedNow waits until exactly these keys are placed, in etcd and in the switches, under the same
// KEY_IDs.
func (r *rig) placedNow(keys ...string) {
	r.t.Helper()
	r.until(fmt.Sprint("placed: ", keys), func() bool {
		e := r.entries()
		return maps.Equal(e, r.nw.inSwitches()) && slices.Equal(slices.Sorted(maps.Keys(e)),
			slices.Sorted(slices.Values(keys)))
	})
}

// settled waits until no move is recorded.
func (r *rig) settled() {
	r.t.Helper()
	r.until("the plan is empty", func() bool {
		p, err := r.p.store.plan(r.t.Context())
		return err == nil && len(p.Moves) == 0
	})
}

// stays checks that the placed keys do not change for a while.
func (r *rig) stays(what string) {
	r.t.Helper()
	before := r.entries()
	time.Sleep(300 * time.Millisecond)
	if now := r.entries(); !maps.Equal(before, now) || !maps.Equal(now, r.nw.inSwitches()) {
		r.t.Fatalf("%s: placed was %v, is %v, in the switches %v", what, before, now, r.nw.inSwitches())
	}
}

func heat(pairs ...any) map[string]policy.Heat {
	out := map[string]policy.Heat{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = policy.Heat{Reads: float64(pairs[i+1].(int))}
	}
	return out
}

// exist creates keys in etcd.
func (r *rig) exist(keys ...string) {
	for _, k := range keys {
		r.put(k, "x")
	}
}

// load makes keys hot, at the gateways and the switches.
func (r *rig) load(pairs ...any) {
	h := heat(pairs...)
	r.source.set(h, nil)
	r.nw.mu.Lock()
	defer r.nw.mu.Unlock()
	for k, x := range h {
		r.nw.rates[DirectoryName(k)] = x
	}
}

// bare returns a sealed cell of a kind, without content. slot returns a cell with a value or an
// absence.
func bare(kind slotcodec.Kind) []byte {
	return append([]byte{byte(kind) | slotcodec.Sealed}, make([]byte, slotcodec.SealOverhead)...)
}

func slot(kind slotcodec.Kind, revision int64) []byte {
	return append(binary.AppendUvarint([]byte{byte(kind) | slotcodec.Sealed}, uint64(revision)),
		make([]byte, slotcodec.SealOverhead)...)
}

// TestHotKeysComeAndGo: the hottest keys are placed, including absent and binary ones. If all slots
// are in use, the coldest key makes room for a hotter one.
func TestHotKeysComeAndGo(t *testing.T) {
	r := newRig(t, 1024, 3)
	r.put("/a", "x")
	r.put("bin\xff\x00", "y")
	r.put("/late", "z")
	r.nw.keys["/native"] = &fakeKey{Key: admin.Key{Name: "/native", KeyID: 1<<24 | 999, Chain: "c1"}, value: []byte("v")}
	r.load("/a", 10, "bin\xff\x00", 20, "/late", 5)
	r.run(nil)
	r.placedNow("/a", "bin\xff\x00") // the third slot belongs to another user's key, which stays in its slot
	r.load("/a", 10, "bin\xff\x00", 20, "/late", 50)
	r.placedNow("/late", "bin\xff\x00")
	if r.nw.keys["/native"] == nil {
		t.Error("a key that is in the network for itself was removed")
	}
	r.settled()
	r.until("the page says so", func() bool {
		show, err := r.p.Show(t.Context())
		return err == nil && len(show.Placed) == 2 && (show.Placed[0].Key == "/late" ||
			show.Placed[0].Key == `bin\xff\x00`) && len(show.Recent) == 4 && show.Chains[0].Free == 0
	})
	for _, event := range []string{"placement.placed /a: ", "placement.removed /a: the coldest"} {
		r.until("the event "+event, func() bool { return r.nw.has(event) })
	}
}

// TestIneligible: a key's state in etcd can prevent its placement, or remove it at once.
func TestIneligible(t *testing.T) {
	r := newRig(t, 128, 10)
	lease, err := r.etcd.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	r.put("/ttl", "x", clientv3.WithLease(lease.ID))
	r.put("/large", strings.Repeat("x", 5000))
	r.put("/ok", "x")
	r.put(policy.HealthKey, "x")
	r.load("/ttl", 10, "/large", 10, "/ok", 10, "/none", 10, policy.HealthKey, 10, prefix+"placed/x", 10)
	r.run(nil)
	r.placedNow("/ok")
	for key, want := range map[string]string{"/ttl": "leased: attached to a lease", "/large": "too-large: too large: its value has 5000 bytes, a cell has 128", policy.HealthKey: "excluded: excluded by default",
		prefix + "placed/x": "own: ", "/ok": "serves: score", "/none": "key-absent: it does not exist", "/never": "not-sampled: it is not among"} {
		r.until(key+" "+want, func() bool {
			why, err := r.p.Why(t.Context(), key)
			return err == nil && strings.HasPrefix(why.Code+": "+why.Reason, want)
		})
	}
	r.put("/ok", "x", clientv3.WithLease(lease.ID)) // write the key as a gateway does after it has guarded the slot
	r.placedNow()
	if why, _ := r.p.Why(t.Context(), "/ok"); why.Code != "leased" {
		r.until("why", func() bool {
			why, _ = r.p.Why(t.Context(), "/ok")
			return why.Code == "leased" || why.Code == "resting"
		})
	}
}

// TestSlots: the content of a slot can remove its key. Such contents are a value that does not fit,
// a lost slot, and the trace of a writer that bypasses the gateways.
func TestSlots(t *testing.T) {
	r := newRig(t, 1024, 10)
	for _, k := range []string{"/unfit", "/gone", "/bypassed", "/deleted", "/created", "/good", "/strange"} {
		if k != "/created" {
			r.put(k, "1")
		}
	}
	r.load("/unfit", 10, "/gone", 10, "/bypassed", 10, "/deleted", 10, "/created", 10, "/good", 10, "/strange", 10)
	r.run(nil)
	// the key /created does not exist yet
	if _, err := r.p.SetRule(t.Context(), admin.PlacementRule{Key: "/created", Choice: "pin"}); err != nil {
		t.Fatal(err)
	}
	r.placedNow("/bypassed", "/created", "/deleted", "/gone", "/good", "/strange", "/unfit")

	// First, all writers keep to the protocol: they guard the slot, write to etcd, and publish the
	// value.
	for range 50 {
		r.nw.set("/good", slot(slotcodec.Guard, 7))
		rev := r.put("/good", "2")
		time.Sleep(2 * time.Millisecond)
		r.nw.set("/good", slot(slotcodec.Value, rev))
	}
	// Then readers populate a slot.
	now := r.put("/else", "")
	r.nw.set("/created", slot(slotcodec.Absent, now))
	for _, k := range []string{"/bypassed", "/deleted"} {
		g, err := r.etcd.Get(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		r.nw.set(k, slot(slotcodec.Value, g.Kvs[0].ModRevision))
	}
	r.stays("a writer that keeps the rules, and readers")

	r.nw.set("/unfit", bare(slotcodec.Unfit))
	r.nw.set("/strange", []byte("hello"))
	r.nw.set("/gone", nil)
	began := time.Now()
	r.put("/bypassed", "2") // this write bypasses the gateways
	r.put("/created", "1")
	if _, err := r.etcd.Delete(t.Context(), "/deleted"); err != nil {
		t.Fatal(err)
	}
	r.until("they are out", func() bool {
		e := r.entries()
		return e["/bypassed"] == 0 && e["/created"] == 0 && e["/deleted"] == 0 && e["/unfit"] == 0 && e["/strange"] == 0
	})
	t.Logf("out of the network %v after writes past the gateways", time.Since(began).Round(time.Millisecond))
	r.placedNow("/gone", "/good") // /gone is placed again, because only its slot was lost
	for key, code := range map[string]string{"/strange": "forged", "/unfit": "value-too-large", "/bypassed": "bypassed", "/created": "bypassed", "/deleted": "bypassed", "/good": "serves"} {
		if why, err := r.p.Why(t.Context(), key); err != nil || why.Code != code {
			t.Errorf("%s: %+v, %v; want %s", key, why, err, code)
		}
	}
	// The removed keys also stay away after a restart.
	r.run(nil)
	r.stays("after a restart")
	// A value that did not fit may fit with a new dictionary.
	r.put(prefix+"dictionaries/1", "of which placement reads the name alone")
	r.placedNow("/gone", "/good", "/unfit")
}

// TestForged: a gateway reports that a slot has content which no gateway has written. The key is
// removed and stays away. Forging it again does not cause more placements.
func TestForged(t *testing.T) {
	r := newRig(t, 1024, 4)
	r.exist("/a", "/b")
	r.load("/a", 10, "/b", 10)
	r.run(nil)
	r.placedNow("/a", "/b")
	id := uint32(r.entries()["/a"])
	for _, e := range []admin.PlacementEviction{{Key: "/c", Fault: "forged"}, {Key: "/a", KeyID: id + 100, Fault: "forged"}} {
		if err := r.p.Evict(t.Context(), e); !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if err := r.p.Evict(t.Context(), admin.PlacementEviction{Key: "/a",
		Fault: "boredom"}); !errors.Is(err, &admin.Error{Code: admin.CodeInvalidArgument}) {
		t.Errorf("a fault that is none: %v", err)
	}
	for range 3 {
		if err := r.p.Evict(t.Context(), admin.PlacementEviction{Key: "/a", KeyID: id, Fault: "forged",
			Reason: "it does not open"}); err != nil && !errors.Is(err,
			&admin.Error{Code: admin.CodeNotFound}) {
			t.Fatal(err)
		}
	}
	r.placedNow("/b")
	r.stays("a key with a forged slot")
	r.nw.mu.Lock()
	defer r.nw.mu.Unlock()
	if n := strings.Count(strings.Join(r.nw.events, "\n"), "placement.forged /a: a gateway has found what no gateway has written in its slot, and it is removed: it does not open"); n != 1 {
		t.Errorf("%d events in %q", n, r.nw.events)
	}
}

// TestSlotsOfOldPlacements: an entry without the slot's version comes from a controller that did
// not seal cells. The new controller places the key again.
func TestSlotsOfOldPlacements(t *testing.T) {
	r := newRig(t, 1024, 4)
	r.exist("/a")
	r.load("/a", 10)
	stop := r.run(nil)
	r.placedNow("/a")
	stop()
	old := r.entries()["/a"]
	if _, err := r.etcd.Put(t.Context(), placement.Name(prefix, "/a"), fmt.Sprintf(`{"id": %d, "chain": "c1"}`, uint32(old))); err != nil {
		t.Fatal(err)
	}
	r.nw.set("/a", []byte("\x02\x05\x00\x01v"))
	r.run(nil)
	r.until("it is placed anew", func() bool { e := r.entries()["/a"]; return e != 0 && e != old })
}

// TestFirstWord: a placement fails if somebody writes to the new slot before placement has read its
// version.
func TestFirstWord(t *testing.T) {
	r := newRig(t, 1024, 4)
	r.exist("/a")
	r.nw.mu.Lock()
	r.nw.meddle = []byte("\x02\x05\x00\x01v")
	r.nw.mu.Unlock()
	r.load("/a", 10)
	r.run(nil)
	r.until("it says so", func() bool {
		return r.nw.has("placement.failed") && r.nw.has("somebody has written its slot, as soon as it was made")
	})
	if e := r.entries(); len(e) != 0 {
		t.Errorf("placed: %v", e)
	}
	r.nw.mu.Lock()
	r.nw.meddle = nil
	r.nw.mu.Unlock()
	r.placedNow("/a")
}

// TestRules: an operator's choices take effect at once, and survive restarts.
func TestRules(t *testing.T) {
	r := newRig(t, 1024, 2)
	r.exist("/r/a", "/r/b", "/s")
	r.load("/r/a", 1000, "/r/b", 500, "/s", 80)
	stop := r.run(nil)
	r.placedNow("/r/a", "/r/b")
	set := func(key string, prefix bool, choice string) *admin.PlacementKey {
		t.Helper()
		k, err := r.p.SetRule(t.Context(), admin.PlacementRule{Key: key, Prefix: prefix, Choice: choice})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if k := set("/cold", false, "pin"); k.Code != "pinned" {
		t.Errorf("%+v", k)
	}
	r.placedNow("/cold", "/r/a")
	set("/r/", true, "exclude")
	r.placedNow("/cold", "/s")
	set("/r/b", false, "include")
	set("/cold", false, "unpin")
	r.placedNow("/r/b", "/s")
	stop()
	r.run(nil)
	r.stays("after a restart")
	set("/r/", true, "include") // revokes the exclusion of /r/, but not the exception for /r/b
	r.placedNow("/r/a", "/r/b")
	set(policy.HealthKey, false, "include")
	show, _ := r.p.Show(t.Context())
	if i := slices.IndexFunc(show.Rules,
		func(x admin.PlacementRule) bool { return x.Key == policy.HealthKey }); i < 0 ||
		show.Rules[i].Choice != "include" || show.Rules[i].Default {
		t.Errorf("%+v", show.Rules)
	}
	for _, wrong := range []admin.PlacementRule{{Key: "/x", Choice: "love"}, {Key: "", Choice: "pin"},
		{Key: "", Prefix: true, Choice: "pin"}, {Key: `/x\`, Choice: "pin"}, {Key: prefix + "x", Choice: "pin"}} {
		if _, err := r.p.SetRule(t.Context(), wrong); !errors.Is(err, &admin.Error{Code: admin.CodeInvalidArgument}) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	set("/r/", true, "exclude")
	set("/r/a", false, "exclude")
	r.placedNow("/r/b", "/s")   // the exception for /r/b still exists
	set("/r/a", false, "clear") // the exclusion of /r/ still applies to /r/a
	set("/r/", true, "clear")
	r.placedNow("/r/a", "/r/b")
	for _, choice := range []string{"unpin", "clear"} {
		if _, err := r.p.SetRule(t.Context(), admin.PlacementRule{Key: "/x",
			Choice: choice}); !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
			t.Error(err)
		}
	}
}

// TestRulesInARow: each choice takes the previous one into account, although rounds read the rules
// meanwhile.
func TestRulesInARow(t *testing.T) {
	r := newRig(t, 1024, 2)
	r.run(nil)
	for i := range 200 {
		for _, choice := range []string{"exclude", "clear"} {
			if _, err := r.p.SetRule(t.Context(), admin.PlacementRule{Key: "/x", Choice: choice}); err != nil {
				t.Fatal(i, err)
			}
		}
	}
}

// TestPinnedPrefix: all keys with a pinned prefix are placed, even if nobody has read them. This
// includes keys that are created later.
func TestPinnedPrefix(t *testing.T) {
	r := newRig(t, 1024, 8)
	r.put("/r/a", "a")
	r.put("/r/not/b", "b")
	r.put("/s", "s")
	r.run(nil)
	for _, rule := range []admin.PlacementRule{{Key: "/r/", Prefix: true, Choice: "pin"}, {Key: "/r/not/", Prefix: true, Choice: "exclude"}} {
		if _, err := r.p.SetRule(t.Context(), rule); err != nil {
			t.Fatal(err)
		}
	}
	r.placedNow("/r/a")
	r.load("/r/c", 10)
	r.until("it is known not to exist", func() bool {
		why, err := r.p.Why(t.Context(), "/r/c")
		return err == nil && why.Code == "key-absent"
	})
	r.put("/r/c", "c")
	r.placedNow("/r/a", "/r/c")
	if _, err := r.p.SetRule(t.Context(), admin.PlacementRule{Key: "/r/", Prefix: true, Choice: "unpin"}); err != nil {
		t.Fatal(err)
	}
	r.until("a round has been without the rule", func() bool { // an earlier round may still place new keys
		why, err := r.p.Why(t.Context(), "/r/a")
		return err == nil && why.Code != "pinned"
	})
	r.put("/r/d", "d")
	r.stays("once it is not pinned any more")
}

// TestKilledAnywhere: the controller is killed before each of its steps in turn. The next
// controller places the same keys, and leaves no leftovers.
func TestKilledAnywhere(t *testing.T) {
	r := newRig(t, 1024, 3)
	story := func(step func(string) error) (killed bool) {
		t.Helper()
		stopped := make(chan struct{})
		count := func(what string) error {
			if step == nil {
				return nil
			}
			err := step(what)
			if err != nil {
				close(stopped)
			}
			return err
		}
		stop := r.run(count)
		defer stop()
		end := time.After(20 * time.Second)
		for {
			select {
			case <-stopped:
				return true
			case <-end:
				t.Fatal("it does not end")
			case <-time.After(5 * time.Millisecond):
			}
			e := r.entries()
			if e["/c"] != 0 && e["/d"] != 0 && e["/e"] != 0 && len(e) == 3 {
				return false
			}
		}
	}
	reset := func() {
		t.Helper()
		if _, err := r.etcd.Delete(t.Context(), prefix, clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		r.nw.keys = map[string]*fakeKey{}
		r.nw.rates = map[string]policy.Heat{}
		r.exist("/a", "/b", "/c", "/d", "/e")
		r.load("/a", 10, "/b", 9, "/c", 8)
		stop := r.run(nil)
		r.placedNow("/a", "/b", "/c")
		stop()
		r.load("/a", 1, "/b", 1, "/c", 8, "/d", 100, "/e", 90)
	}
	for n := 0; ; n++ {
		reset()
		steps := 0
		at := ""
		killed := story(func(what string) error {
			if steps++; steps > n {
				at = what
				return errKilled
			}
			return nil
		})
		if !killed {
			if n < 8 {
				t.Errorf("there were only %d steps", n)
			}
			break
		}
		left := r.entries()
		stop := r.run(nil)
		r.placedNow("/c", "/d", "/e")
		r.settled()
		stop()
		t.Logf("killed before %q, when %v were placed", at, slices.Sorted(maps.Keys(left)))
	}
}

// TestNotLeading: if placement's controller has lost the leadership, placement changes nothing in
// etcd.
func TestNotLeading(t *testing.T) {
	r := newRig(t, 1024, 3)
	r.put("/leader", "me")
	r.conds = []clientv3.Cmp{clientv3.Compare(clientv3.Value("/leader"), "=", "me")}
	r.exist("/a", "/b")
	r.load("/a", 10)
	r.run(nil)
	r.placedNow("/a")
	r.put("/leader", "you")
	before := r.entries()
	r.load("/a", 0, "/b", 100)
	r.until("it says so", func() bool {
		show, _ := r.p.Show(t.Context())
		return strings.Contains(show.Problem, "does not lead")
	})
	if now := r.entries(); !maps.Equal(before, now) {
		t.Errorf("entries were %v, are %v", before, now)
	}
	if _, err := r.p.SetRule(t.Context(), admin.PlacementRule{Key: "/x", Choice: "pin"}); err == nil {
		t.Error("a rule was written")
	}
}

// TestFailures: some switches and chains do not answer. No key is lost, and failed moves are
// repeated.
func TestFailures(t *testing.T) {
	r := newRig(t, 1024, 2, 2)
	r.nw.chains[1].Ready = false
	r.exist("/a", "/b", "/c")
	r.load("/a", 10, "/b", 9, "/c", 8)
	r.run(nil)
	r.placedNow("/a", "/b")
	if why, _ := r.p.Why(t.Context(), "/c"); why.Code != "full" {
		t.Errorf("%+v", why)
	}
	// If a switch does not answer, its part of the heat is unknown. So the keys of its chain stay
	// placed, however cold they are.
	r.nw.mu.Lock()
	r.nw.down["s1"] = true
	r.nw.mu.Unlock()
	r.load("/a", 0, "/b", 0, "/c", 8)
	r.until("the heat is not known", func() bool { why, _ := r.p.Why(t.Context(), "/a"); return why.Code == "no-rate" })
	r.stays("a switch is down")
	// Now the controller refuses changes.
	r.nw.mu.Lock()
	r.nw.down["s1"] = false
	r.nw.refuse = admin.Errorf(admin.CodeUnavailable, "not now")
	r.nw.mu.Unlock()
	r.until("it says so", func() bool { return r.nw.has("placement.failed") && r.nw.has("tried again: not now") })
	r.nw.mu.Lock()
	r.nw.refuse = nil
	r.nw.chains[1].Ready = true
	r.nw.mu.Unlock()
	r.until("/c is placed", func() bool { return r.entries()["/c"] != 0 })
}

// TestEvict: if gateways cannot write a key, the key is removed. The problem must last while the
// chain is ready, and the report must be about the present placement.
func TestEvict(t *testing.T) {
	r := newRig(t, 1024, 4)
	r.limits.Cooldown = time.Hour
	r.exist("/a", "/b", "/c")
	r.load("/a", 10, "/b", 10, "/c", 10)
	r.run(nil)
	r.placedNow("/a", "/b", "/c")
	id := uint32(r.entries()["/a"])
	for _, e := range []admin.PlacementEviction{{Key: "/d"}, {Key: "/a", KeyID: id + 100}} {
		if err := r.p.Evict(t.Context(), e); !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	evict := func(key string) {
		t.Helper()
		if err := r.p.Evict(t.Context(), admin.PlacementEviction{Key: key,
			KeyID: uint32(r.entries()[key]), Reason: "silence"}); err != nil {
			t.Fatal(err)
		}
	}
	// A failover takes place, so the chain is not ready for a while. Afterwards some gateway writes
	// /b, and no gateway writes /a.
	r.nw.mu.Lock()
	r.nw.chains[0].Ready = false
	r.nw.mu.Unlock()
	evict("/a")
	evict("/a")
	evict("/b")
	time.Sleep(unreachableWait + unreachableWait/2)
	if e := r.entries(); len(e) != 3 {
		t.Errorf("while the chain was not ready, %v were left", e)
	}
	r.nw.mu.Lock()
	r.nw.chains[0].Ready = true
	r.nw.mu.Unlock()
	began := time.Now()
	time.Sleep(unreachableWait / 2)
	if e := r.entries(); len(e) != 3 {
		t.Errorf("before anybody could have written, %v were left", e)
	}
	r.nw.set("/b", slot(slotcodec.Value, 1<<40))
	r.placedNow("/b", "/c")
	t.Logf("/a went %v after the chain was ready", time.Since(began).Round(time.Millisecond))
	r.stays("/b was written meanwhile")
	r.nw.mu.Lock()
	defer r.nw.mu.Unlock()
	if n := strings.Count(strings.Join(r.nw.events, "\n"), "placement.slot-unreachable /a: a gateway asks to remove it: silence"); n != 1 {
		t.Errorf("%d events in %q", n, r.nw.events)
	}
}

// TestEtcdAway: without etcd nothing changes, and the status says why. Afterwards placement
// continues.
func TestEtcdAway(t *testing.T) {
	server := etcdtest.Start(t)
	line := newLine(t, server)
	r := &rig{t: t, etcd: etcdtest.Client(t, line.address()), nw: newNetwork(t, 1024, 2),
		source: &fakeSource{}, limits: quick()}
	r.exist("/a", "/b", "/c", "/d")
	r.load("/a", 10, "/b", 10)
	r.run(nil)
	r.placedNow("/a", "/b")
	line.cut(true)
	r.load("/a", 0, "/b", 0, "/c", 100, "/d", 100)
	r.until("it says so", func() bool {
		show, _ := r.p.Show(t.Context())
		return strings.Contains(show.Problem, "etcd")
	})
	if now := r.nw.inSwitches(); len(now) != 2 || now["/a"] == 0 || now["/b"] == 0 {
		t.Errorf("in the switches: %v", now)
	}
	if _, err := r.p.SetRule(t.Context(), admin.PlacementRule{Key: "/x", Choice: "pin"}); !errors.Is(err,
		&admin.Error{Code: admin.CodeUnavailable}) {
		t.Errorf("a rule: %v", err)
	}
	line.cut(false)
	r.placedNow("/c", "/d")
}

// line is a connection to a server that the test can cut.
type line struct {
	listener net.Listener
	mu       sync.Mutex
	isCut    bool
	open     []net.Conn
}

func newLine(t *testing.T, server string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	x := &line{listener: l}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			x.mu.Lock()
			if err != nil || x.isCut {
				in.Close()
				if err == nil {
					out.Close()
				}
				x.mu.Unlock()
				continue
			}
			x.open = append(x.open, in, out)
			x.mu.Unlock()
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	return x
}

func (x *line) address() string { return x.listener.Addr().String() }

func (x *line) cut(is bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.isCut = is
	for _, c := range x.open {
		c.Close()
	}
	x.open = nil
}

// TestStrangers: placement repairs the entries and the directory after other programs have changed
// them.
func TestStrangers(t *testing.T) {
	r := newRig(t, 1024, 5)
	r.exist("/a", "/b")
	r.load("/a", 10)
	stop := r.run(nil)
	r.placedNow("/a")
	r.settled() // wait for the recorded move, because otherwise the next controller would carry it out
	stop()
	// There are three cases. A key has a name of placement's form, but nobody has placed it. The
	// key of an entry is not in the switches. The directory was lost, so a key has another name.
	if _, err := r.nw.AddKeys(t.Context(), "c1", []admin.KeySpec{{Name: DirectoryName("/stray"), Value: []byte{1}}}); err != nil {
		t.Fatal(err)
	}
	s := placement.Store{KV: r.etcd, Prefix: prefix}
	if _, err := s.Put(t.Context(), "/nowhere", placement.Entry{ID: 0x01000999, Chain: "c1"}); err != nil {
		t.Fatal(err)
	}
	k := r.nw.keys[DirectoryName("/a")]
	delete(r.nw.keys, k.Name)
	k.Name = k.KeyIDName()
	r.nw.keys[k.Name] = k
	r.load("/b", 10)
	r.run(nil)
	r.placedNow("/b")
	if len(r.nw.keys) != 1 {
		t.Errorf("%v", r.nw.keys)
	}
}

func (k *fakeKey) KeyIDName() string { return wire.Key(k.KeyID).String() }

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
