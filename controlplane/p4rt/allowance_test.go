package p4rt

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/internal/racedetector"
	"github.com/netcraq/netcraq/p4src"
)

// hostile is a switch that answers a Read, and a request for its program, with arbitrary content.
type hostile struct {
	v1.UnimplementedP4RuntimeServer
	answer func(func(*v1.ReadResponse) error) error
	config *v1.ForwardingPipelineConfig
	header int // length of the trailer in bytes; 0: no trailer
}

func (h *hostile) Read(_ *v1.ReadRequest, s v1.P4Runtime_ReadServer) error {
	if h.header > 0 {
		return status.Error(codes.NotFound, strings.Repeat("x", h.header))
	}
	return h.answer(s.Send)
}

func (h *hostile) GetForwardingPipelineConfig(context.Context, *v1.GetForwardingPipelineConfigRequest) (
	*v1.GetForwardingPipelineConfigResponse, error) {
	return &v1.GetForwardingPipelineConfigResponse{Config: h.config}, nil
}

func (h *hostile) client(t *testing.T, info *Info) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	v1.RegisterP4RuntimeServer(s, h)
	go func() { _ = s.Serve(l) }() // returns when the test ends
	t.Cleanup(s.Stop)
	c, err := New(Options{Name: "s1", Target: l.Addr().String(), ElectionID: ElectionID{0, 1}, Info: info,
		RPCTimeout: answerTimeout}, Handler{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.conn.Close() })
	return c
}

// answerTimeout suffices to read a few thousand entities, even on a busy machine. If the client
// does not abandon an endless answer, answerTimeout ends the read.
const answerTimeout = time.Minute

func compiled(t *testing.T, bits int) *Info {
	t.Helper()
	_, b, err := p4src.Compiled(bits)
	if err != nil {
		t.Fatal(err)
	}
	info, err := ParseInfo(b)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func largest(bytes int) []byte { return []byte(strings.Repeat("\xff", bytes)) }

// fullEntry returns the largest possible entry of a table.
func fullEntry(info *Info, t *configv1.Table) *v1.TableEntry {
	te := &v1.TableEntry{TableId: t.Preamble.Id, Priority: 1<<31 - 1, ControllerMetadata: 1<<64 - 1,
		Metadata: largest(16)}
	for _, f := range t.MatchFields {
		v := largest(valueBytes(f.Bitwidth) + 1) // one byte more, because older targets pad values
		m := &v1.FieldMatch{FieldId: f.Id}
		switch f.GetMatchType() {
		case configv1.MatchField_EXACT:
			m.FieldMatchType = &v1.FieldMatch_Exact_{Exact: &v1.FieldMatch_Exact{Value: v}}
		case configv1.MatchField_LPM:
			m.FieldMatchType = &v1.FieldMatch_Lpm{Lpm: &v1.FieldMatch_LPM{Value: v, PrefixLen: 128}}
		case configv1.MatchField_RANGE:
			m.FieldMatchType = &v1.FieldMatch_Range_{Range: &v1.FieldMatch_Range{Low: v, High: v}}
		default:
			m.FieldMatchType = &v1.FieldMatch_Ternary_{Ternary: &v1.FieldMatch_Ternary{Value: v, Mask: v}}
		}
		te.Match = append(te.Match, m)
	}
	var best *v1.Action
	for _, r := range t.ActionRefs {
		a := &v1.Action{ActionId: r.Id}
		for _, p := range info.actions.byID[r.Id].Params {
			a.Params = append(a.Params, &v1.Action_Param{ParamId: p.Id, Value: largest(valueBytes(p.Bitwidth) + 1)})
		}
		if best == nil || proto.Size(a) > proto.Size(best) {
			best = a
		}
	}
	if best != nil {
		te.Action = &v1.TableAction{Type: &v1.TableAction_Action{Action: best}}
	}
	return te
}

// TestFullAnswers: the client accepts the largest answers that a switch can give, in one message or
// in many.
func TestFullAnswers(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("skipped: make test runs it without the race detector, with which it takes minutes")
	}
	for bits, atOnce := range map[int]int{128: 1, 8192: 1 << 20} {
		info := compiled(t, bits)
		h := &hostile{}
		c := h.client(t, info)
		ctx := t.Context()
		// send sends n entities, and an empty message.
		send := func(n int, entity func(i int) *v1.Entity) {
			h.answer = func(send func(*v1.ReadResponse) error) error {
				r := &v1.ReadResponse{}
				for i := range n {
					r.Entities = append(r.Entities, entity(i))
					if len(r.Entities) == atOnce || i == n-1 {
						if err := send(r); err != nil {
							return err
						}
						r = &v1.ReadResponse{}
					}
				}
				return send(r)
			}
		}
		for _, table := range info.P4Info.Tables {
			send(int(table.Size), func(int) *v1.Entity { return EntryEntity(fullEntry(info, table)) })
			if got, err := c.ReadTable(ctx, table.Preamble.Name); err != nil || len(got) != int(table.Size) {
				t.Errorf("table %s: %d, %v", table.Preamble.Name, len(got), err)
			}
		}
		for _, x := range info.P4Info.Counters {
			send(int(x.Size), func(i int) *v1.Entity {
				return &v1.Entity{Entity: &v1.Entity_CounterEntry{CounterEntry: &v1.CounterEntry{
					CounterId: x.Preamble.Id,
					Index:     &v1.Index{Index: int64(i)}, Data: &v1.CounterData{PacketCount: -1, ByteCount: -1}}}}
			})
			if got, err := c.ReadCounter(ctx, x.Preamble.Name); err != nil || got[len(got)-1].Packets == 0 {
				t.Errorf("counter %s: %v", x.Preamble.Name, err)
			}
		}
		for _, x := range info.P4Info.Meters {
			send(int(x.Size), func(i int) *v1.Entity {
				full := &v1.CounterData{PacketCount: -1, ByteCount: -1}
				return &v1.Entity{Entity: &v1.Entity_MeterEntry{MeterEntry: &v1.MeterEntry{
					MeterId: x.Preamble.Id, Index: &v1.Index{Index: int64(i)},
					Config:      &v1.MeterConfig{Cir: -1, Cburst: -1, Pir: -1, Pburst: -1},
					CounterData: &v1.MeterCounterData{Green: full, Yellow: full, Red: full}}}}
			})
			if got, err := c.ReadMeter(ctx, x.Preamble.Name); err != nil || len(got) != int(x.Size) {
				t.Errorf("meter %s: %d, %v", x.Preamble.Name, len(got), err)
			}
		}
		for _, x := range info.P4Info.Registers {
			all := make([]int, x.Size)
			_, width, _ := info.RegisterSize(x.Preamble.Name)
			for i := range all {
				all[i] = i
			}
			cell := func(i int) *v1.Entity {
				v := &v1.P4Data{Data: &v1.P4Data_Bitstring{Bitstring: largest((width+7)/8 + 1)}}
				return &v1.Entity{Entity: &v1.Entity_RegisterEntry{RegisterEntry: &v1.RegisterEntry{
					RegisterId: x.Preamble.Id, Index: &v1.Index{Index: int64(i)}, Data: v}}}
			}
			send(int(x.Size), cell)
			if got, err := c.ReadRegisterCells(ctx, x.Preamble.Name, all); err != nil || len(got) != int(x.Size) {
				t.Errorf("register %s: %d, %v", x.Preamble.Name, len(got), err)
			}
			send(1, cell)
			if _, err := c.ReadRegister(ctx, x.Preamble.Name, 0); err != nil {
				t.Errorf("a cell of register %s: %v", x.Preamble.Name, err)
			}
		}
		send(20000, func(i int) *v1.Entity {
			var ports []Replica
			for p := range 1 + i%16 {
				ports = append(ports, Replica{uint32(p), 0xFFFF})
			}
			e, err := EncodeGroup(Group{uint32(i + 1), ports})
			if err != nil {
				t.Error(err)
			}
			return e
		})
		if got, err := c.ReadGroups(ctx); err != nil || len(got) != 20000 {
			t.Errorf("groups: %d, %v", len(got), err)
		}
		h.config = &v1.ForwardingPipelineConfig{P4Info: info.P4Info}
		if got, _, err := c.Running(ctx); err != nil || len(got.Tables) != len(info.P4Info.Tables) {
			t.Errorf("the program: %v", err)
		}
	}
}

// TestAnswersWithoutEnd: the client abandons an answer that is larger than the request allows.
func TestAnswersWithoutEnd(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("skipped: make test runs it without the race detector, with which it takes minutes")
	}
	info := compiled(t, 128)
	table := info.P4Info.Tables[0]
	for _, x := range info.P4Info.Tables {
		if x.Size < table.Size {
			table = x
		}
	}
	counter, register := info.P4Info.Counters[0], info.P4Info.Registers[0]
	fields := func(n int) *v1.Entity {
		te := &v1.TableEntry{TableId: table.Preamble.Id}
		for range n {
			te.Match = append(te.Match, &v1.FieldMatch{})
		}
		return EntryEntity(te)
	}
	params := fields(0)
	params.GetTableEntry().Action = &v1.TableAction{Type: &v1.TableAction_Action{Action: &v1.Action{
		ActionId: table.ActionRefs[0].Id, Params: make([]*v1.Action_Param, 20)}}}
	for i := range params.GetTableEntry().GetAction().GetAction().Params {
		params.GetTableEntry().GetAction().GetAction().Params[i] = &v1.Action_Param{}
	}
	set := fields(0)
	set.GetTableEntry().Action = &v1.TableAction{Type: &v1.TableAction_ActionProfileActionSet{
		ActionProfileActionSet: &v1.ActionProfileActionSet{}}}
	large := EntryEntity(fullEntry(info, table))
	large.GetTableEntry().Metadata = largest(4096)
	cell := &v1.Entity{Entity: &v1.Entity_RegisterEntry{RegisterEntry: &v1.RegisterEntry{
		RegisterId: register.Preamble.Id, Index: &v1.Index{},
		Data: &v1.P4Data{Data: &v1.P4Data_Bitstring{Bitstring: largest(1 << 10)}}}}}
	all := make([]int, register.Size)
	for i := range all {
		all[i] = i
	}
	group := groupEntity(&v1.MulticastGroupEntry{MulticastGroupId: 1})
	wide := groupEntity(&v1.MulticastGroupEntry{MulticastGroupId: 1, Replicas: make([]*v1.Replica, 1<<16)})
	for i := range wide.GetPacketReplicationEngineEntry().GetMulticastGroupEntry().Replicas {
		wide.GetPacketReplicationEngineEntry().GetMulticastGroupEntry().Replicas[i] = &v1.Replica{Instance: 1}
	}
	many := func(n int, e *v1.Entity) (out []*v1.Entity) {
		for range n {
			out = append(out, e)
		}
		return out
	}
	readTable := func(c *Client) error { _, err := c.ReadTable(t.Context(), table.Preamble.Name); return err }
	readGroups := func(c *Client) error { _, err := c.ReadGroups(t.Context()); return err }
	for what, x := range map[string]struct {
		ask     func(*Client) error
		message []*v1.Entity
		times   int // how often the message is sent; 0: endlessly
	}{
		"entries":                  {readTable, many(100, EntryEntity(fullEntry(info, table))), 0},
		"entries, one at a time":   {readTable, many(1, EntryEntity(fullEntry(info, table))), 0},
		"messages of nothing":      {readTable, nil, 0},
		"entities of nothing":      {readTable, many(1<<20, &v1.Entity{}), 0},
		"one message of nothing":   {readTable, many(1<<20, &v1.Entity{}), 1},
		"an entry of many fields":  {readTable, many(1, fields(40)), 1},
		"an entry of many params":  {readTable, many(1, params), 1},
		"an entry of many actions": {readTable, many(1, set), 1},
		"an entry of much":         {readTable, many(1, large), 1},
		"entries of another table": {readTable, many(1, EntryEntity(&v1.TableEntry{TableId: 1})), 1},
		"a default entry": {func(c *Client) error {
			_, err := c.ReadDefault(t.Context(), table.Preamble.Name)
			return err
		}, many(100, EntryEntity(&v1.TableEntry{TableId: table.Preamble.Id, IsDefaultAction: true})), 0},
		"groups":          {readGroups, many(1000, group), 0},
		"a group of many": {readGroups, many(1, wide), 1},
		"meters": {func(c *Client) error {
			_, err := c.ReadMeter(t.Context(), info.meters.names[0])
			return err
		}, many(100, &v1.Entity{}), 0},
		"counters": {func(c *Client) error {
			_, err := c.ReadCounter(t.Context(), counter.Preamble.Name)
			return err
		}, many(100, &v1.Entity{}), 0},
		"cells of a counter": {func(c *Client) error {
			_, err := c.ReadCounterCells(t.Context(), counter.Preamble.Name, []int{0, 1})
			return err
		}, many(10, &v1.Entity{}), 0},
		"a cell of a register": {func(c *Client) error {
			_, err := c.ReadRegister(t.Context(), register.Preamble.Name, 0)
			return err
		}, many(1, cell), 0},
		"cells of a register": {func(c *Client) error {
			_, err := c.ReadRegisterCells(t.Context(), register.Preamble.Name, all)
			return err
		}, many(100, cell), 0},
		"... of nothing": {func(c *Client) error {
			_, err := c.ReadRegisterCells(t.Context(), register.Preamble.Name, all)
			return err
		}, nil, 0},
		"some cells": {func(c *Client) error {
			_, err := c.ReadRegisterCells(t.Context(), register.Preamble.Name, []int{0, 1})
			return err
		}, many(1, cell), 0},
	} {
		t.Run(what, func(t *testing.T) {
			h := &hostile{answer: func(send func(*v1.ReadResponse) error) error {
				for i := 0; x.times == 0 || i < x.times; i++ {
					if err := send(&v1.ReadResponse{Entities: x.message}); err != nil {
						return err
					}
				}
				return nil
			}}
			began := time.Now()
			err := x.ask(h.client(t, info))
			if what == "entries of another table" && err != nil {
				return // any other error is fine
			}
			if !errors.Is(err, ErrAnswerTooLarge) && status.Code(err) != codes.ResourceExhausted {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	}
	h := &hostile{config: &v1.ForwardingPipelineConfig{P4Info: &configv1.P4Info{
		Tables: make([]*configv1.Table, 3<<20)}}}
	for i := range h.config.P4Info.Tables {
		h.config.P4Info.Tables[i] = &configv1.Table{}
	}
	c := h.client(t, info)
	if _, _, err := c.Running(t.Context()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a program of %d tables: %v", len(h.config.P4Info.Tables), err)
	}
	h.header = 2 << 20
	if _, err := c.ReadTable(t.Context(), strconv.Itoa(0)); err == nil {
		t.Error("a table that is not there")
	}
	if _, err := c.ReadTable(t.Context(), table.Preamble.Name); err == nil || len(err.Error()) > largestHeader {
		t.Errorf("an error of %d bytes: %.100v", h.header, err)
	}
}
