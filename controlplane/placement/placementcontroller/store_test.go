package placementcontroller

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// TestPlanOfEarlierVersion: an upgraded controller understands its predecessor's plan, although
// names in it have changed.
func TestPlanOfEarlierVersion(t *testing.T) {
	etcd := etcdtest.Client(t, etcdtest.Start(t))
	_, err := etcd.Put(t.Context(), prefix+"plan", `{"moves":[{"op":"remove","key":"L2E=","chain":"main","code":"broken","reason":"lost"}],
		"away":{"/b":{"until":"2026-01-01T00:00:00Z","code":"unfit","bytes":690,"dictionary":2},"/c":{"until":"2026-01-01T00:00:00Z","code":"mute"},
		"/d":{"until":"2026-01-01T00:00:00Z","code":"absent"},"/e":{"until":"2026-01-01T00:00:00Z","code":"resting"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	s := store{kv: etcd, prefix: prefix}
	p, err := s.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Moves) != 1 || string(p.Moves[0].Key) != "/a" || p.Moves[0].Code != policy.SlotLost {
		t.Errorf("the moves are %+v", p.Moves)
	}
	codes := map[string]policy.Code{}
	for key, a := range p.Away {
		codes[key] = a.Code
	}
	want := map[string]policy.Code{"/b": policy.ValueTooLarge, "/c": policy.SlotUnreachable,
		"/d": policy.KeyAbsent, "/e": policy.Resting}
	if diff := cmp.Diff(want, codes); diff != "" {
		t.Errorf("who stays away (-want +got):\n%s", diff)
	}
	if a := p.Away["/b"]; a.Bytes != 690 || a.Dictionary != 2 {
		t.Errorf("/b stays away as %+v", a)
	}
	if f := placement.ParseFault("mute"); f != placement.SlotUnreachable {
		t.Errorf("what earlier gateways call mute is %q", f)
	}
}
