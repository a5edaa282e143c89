package p4rtserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
)

// TestFollowPorts checks that groups, one-shot action sets, multicast groups and clone sessions
// depend on the ports that are up, until they are deleted.
func TestFollowPorts(t *testing.T) {
	w := newWorld(t, "testdata/entities")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w.connect(t, "a", "1", "", 1)
	a := w.controllers["a"]
	if out := w.push(ctx, a, "VERIFY_AND_COMMIT", "", "", 0); !strings.HasPrefix(out, "ok") {
		t.Fatal(out)
	}
	write := func(typ p4v1.Update_Type, entities ...*p4v1.Entity) {
		t.Helper()
		req := &p4v1.WriteRequest{DeviceId: 1, ElectionId: &p4v1.Uint128{Low: 1}}
		for _, e := range entities {
			req.Updates = append(req.Updates, &p4v1.Update{Type: typ, Entity: e})
		}
		if _, err := w.rpc.Write(ctx, req); err != nil {
			t.Fatal(w.outcome(err))
		}
	}
	watched := func(port byte) *p4v1.ActionProfileGroup_Member {
		return &p4v1.ActionProfileGroup_Member{MemberId: uint32(port), Weight: 1,
			WatchKind: &p4v1.ActionProfileGroup_Member_WatchPort{WatchPort: []byte{port}}}
	}
	drop := &p4v1.Action{ActionId: w.ids["drop"]}
	ecmp := w.ids["ecmp"]
	var members []*p4v1.Entity
	for id := range uint32(3) {
		members = append(members, &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileMember{
			ActionProfileMember: &p4v1.ActionProfileMember{ActionProfileId: ecmp,
				MemberId: id + 1, Action: drop}}})
	}
	always := &p4v1.ActionProfileGroup_Member{MemberId: 3, Weight: 1}
	group := &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileGroup{
		ActionProfileGroup: &p4v1.ActionProfileGroup{ActionProfileId: ecmp, GroupId: 1,
			Members: []*p4v1.ActionProfileGroup_Member{watched(1), watched(2), always}}}}
	replica := []*p4v1.Replica{{PortKind: &p4v1.Replica_Port{Port: []byte{1}}, Instance: 1,
		BackupReplicas: []*p4v1.BackupReplica{{Port: []byte{2}, Instance: 2},
			{Port: []byte{3}, Instance: 3}}}}
	multicast := &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{
				MulticastGroupEntry: &p4v1.MulticastGroupEntry{MulticastGroupId: 1,
					Replicas: replica}}}}}
	clone := &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{
				CloneSessionEntry: &p4v1.CloneSessionEntry{SessionId: 1,
					PacketLengthBytes: 64, Replicas: replica}}}}}

	// state describes the members of every group, and the ports of the multicast group and the
	// session.
	state := func() string {
		p := w.dev.Pipeline()
		groups, err := p.Groups("MyIngress.ecmp")
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, g := range groups {
			for _, m := range g {
				out += fmt.Sprint(m.Member)
			}
			out += " "
		}
		for _, r := range p.MulticastGroups()[1] {
			out += fmt.Sprintf("m%d ", r.Port)
		}
		for _, r := range p.CloneSessions()[1].Replicas {
			out += fmt.Sprintf("c%d", r.Port)
		}
		return out
	}
	expect := func(want string, down ...uint32) {
		t.Helper()
		for port := range uint32(4) {
			linksDown.Delete(portedIface(port + 1))
		}
		for _, port := range down {
			linksDown.Store(portedIface(port), true)
		}
		for state() != want {
			select {
			case <-ctx.Done():
				t.Fatalf("with the ports %v down the state is %q, want %q", down, state(), want)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	defer expect("")

	write(p4v1.Update_INSERT, append(members, group, multicast, clone)...)
	expect("123 m1 c1")
	expect("23 m2 c2", 1)
	expect("3 m3 c3", 1, 2)
	expect("3 m1 c1", 1, 2, 3)
	expect("13 m1 c1", 2)
	write(p4v1.Update_MODIFY, group) // this update arrives while a port is down
	expect("13 m1 c1", 2)
	expect("123 m1 c1")
	write(p4v1.Update_DELETE, append([]*p4v1.Entity{group, multicast, clone}, members...)...)

	set := &p4v1.ActionProfileActionSet{}
	for port := range byte(2) {
		set.ActionProfileActions = append(set.ActionProfileActions, &p4v1.ActionProfileAction{
			Action: drop, Weight: 1,
			WatchKind: &p4v1.ActionProfileAction_WatchPort{WatchPort: []byte{port + 1}}})
	}
	shot := &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{
		TableId: w.ids["balance"],
		Match: []*p4v1.FieldMatch{{FieldId: 1, FieldMatchType: &p4v1.FieldMatch_Exact_{
			Exact: &p4v1.FieldMatch_Exact{Value: []byte{1}}}}},
		Action: &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileActionSet{
			ActionProfileActionSet: set}}}}}
	write(p4v1.Update_INSERT, shot)
	expect("12 ")
	expect("2 ", 1)
	expect(" ", 1, 2)
	write(p4v1.Update_DELETE, shot)
	expect("")
}

// TestHasCarrier checks that a missing interface counts as down.
func TestHasCarrier(t *testing.T) {
	if hasCarrier("no-such-1") {
		t.Error("an interface that there is not is up")
	}
	if !hasCarrier("lo") {
		t.Error("the loopback interface is down")
	}
}

// TestGroupSizes checks that an action set may choose how its size is counted, and that a selector
// may disallow weights.
func TestGroupSizes(t *testing.T) {
	sum := &p4cfg.ActionProfile{MaxGroupSize: 4}
	none := &p4cfg.ActionProfile{MaxGroupSize: 4, WeightsDisallowed: true}
	most := &p4cfg.ActionProfile{MaxGroupSize: 4,
		SelectorSizeSemantics: &p4cfg.ActionProfile_SumOfMembers_{
			SumOfMembers: &p4cfg.ActionProfile_SumOfMembers{MaxMemberWeight: 8}}}
	const (
		weights = p4v1.ActionProfileActionSet_SUM_OF_WEIGHTS
		members = p4v1.ActionProfileActionSet_SUM_OF_MEMBERS
	)
	for _, c := range []struct {
		info    *p4cfg.ActionProfile
		size    p4v1.ActionProfileActionSet_SizeSemantics
		weights []int32
		want    codes.Code
	}{
		{sum, 0, []int32{1, 3}, codes.OK},
		{sum, 0, []int32{5}, codes.InvalidArgument},
		{sum, weights, []int32{5}, codes.InvalidArgument},
		{sum, members, []int32{5}, codes.OK},
		{sum, 0, []int32{0}, codes.InvalidArgument},
		{most, 0, []int32{8, 8}, codes.OK},
		{most, 0, []int32{9}, codes.InvalidArgument},
		{most, 0, []int32{1, 1, 1, 1, 1}, codes.InvalidArgument},
		{most, weights, []int32{8}, codes.InvalidArgument},
		{none, 0, []int32{0, 0, 0, 0}, codes.OK},
		{none, 0, []int32{0, 0, 0, 0, 0}, codes.InvalidArgument},
		{none, 0, []int32{1}, codes.InvalidArgument},
	} {
		p := &translate.ActionProfile{Info: c.info}
		byMembers, err := p.SelectionOf(&p4v1.ActionProfileActionSet{SizeSemantics: c.size})
		if err == nil {
			err = p.CheckWeights(c.weights, 0, byMembers, codes.InvalidArgument)
		}
		if status.Code(err) != c.want {
			t.Errorf("%v with weights %v and %v: %v, want %v", c.info, c.weights, c.size, err,
				c.want)
		}
	}
}
