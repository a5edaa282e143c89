// Package bmv2test drives BMv2's simple_switch_grpc in tests. It offers a running BMv2 as a
// [target.Pipeline] over P4Runtime, as far as BMv2 supports that.
package bmv2test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Pipeline is a program that runs on BMv2. BMv2 does not offer registers and value sets over
// P4Runtime, so callers must not use them. Callers must not use methods that this type does not
// implement either.
type Pipeline struct {
	target.Pipeline // always nil; declares the methods that this type does not implement

	program *bmv2json.Program
	device  uint64
	info    *configv1.P4Info
	ids     map[string]uint32
	groups  map[uint32][]target.Replica
	client  p4v1.P4RuntimeClient
	stream  p4v1.P4Runtime_StreamChannelClient
}

// Connect becomes the controller of a switch that is starting, and pushes a program. If packetIn is
// not nil, it receives the frames that the switch sends to its CPU port, each with the program's
// packet-in header in front. The connection ends with ctx.
func Connect(ctx context.Context, conn grpc.ClientConnInterface, device uint64, json []byte,
	prog *bmv2json.Program, info *configv1.P4Info, packetIn func(frame []byte)) (*Pipeline, error) {
	p := &Pipeline{program: prog, device: device, info: info, ids: map[string]uint32{},
		groups: map[uint32][]target.Replica{}, client: p4v1.NewP4RuntimeClient(conn)}
	for _, t := range info.Tables {
		p.ids[t.Preamble.Name] = t.Preamble.Id
		for _, m := range t.MatchFields {
			p.ids[t.Preamble.Name+" "+m.Name] = m.Id
		}
	}
	for _, a := range info.Actions {
		p.ids[a.Preamble.Name] = a.Preamble.Id
	}
	for _, c := range info.Counters {
		p.ids[c.Preamble.Name] = c.Preamble.Id
	}
	var err error
	// A starting switch refuses connections, or accepts them without answering.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = p.arbitrate(ctx); err == nil {
			break
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, fmt.Errorf("connecting to BMv2: %w", err)
		}
	}
	go func() {
		for {
			m, err := p.stream.Recv()
			if err != nil {
				return
			}
			if in := m.GetPacket(); in != nil && packetIn != nil {
				packetIn(append(p.header("packet_in", in.Metadata), in.Payload...))
			}
		}
	}()
	_, err = p.client.SetForwardingPipelineConfig(ctx, &p4v1.SetForwardingPipelineConfigRequest{
		DeviceId: device, ElectionId: election,
		Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: &p4v1.ForwardingPipelineConfig{P4Info: info, P4DeviceConfig: json},
	})
	if err != nil {
		return nil, fmt.Errorf("pushing the program to BMv2: %w", err)
	}
	return p, nil
}

var election = &p4v1.Uint128{Low: 1}

func (p *Pipeline) arbitrate(ctx context.Context) (err error) {
	if p.stream, err = p.client.StreamChannel(ctx, grpc.WaitForReady(true)); err != nil {
		return err
	}
	if err = p.stream.Send(&p4v1.StreamMessageRequest{
		Update: &p4v1.StreamMessageRequest_Arbitration{
			Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: p.device,
				ElectionId: election}}}); err != nil {
		return err
	}
	_, err = p.stream.Recv()
	return err
}

// header encodes the fields of a controller header. Method split does the reverse.
func (p *Pipeline) header(name string, fields []*p4v1.PacketMetadata) []byte {
	var out []byte
	at := 0
	for _, m := range p.metadata(name) {
		for _, f := range fields {
			if f.MetadataId != m.Id {
				continue
			}
			for bit := int(m.Bitwidth) - 1; bit >= 0; bit-- {
				for len(out) <= at/8 {
					out = append(out, 0)
				}
				if i := len(f.Value) - 1 - bit/8; i >= 0 && f.Value[i]>>(bit%8)&1 == 1 {
					out[at/8] |= 0x80 >> (at % 8)
				}
				at++
			}
		}
	}
	return out
}

func (p *Pipeline) split(name string, frame []byte) (fields []*p4v1.PacketMetadata,
	payload []byte) {
	at := 0
	for _, m := range p.metadata(name) {
		value := make([]byte, (m.Bitwidth+7)/8)
		for bit := int(m.Bitwidth) - 1; bit >= 0; bit-- {
			if at/8 < len(frame) && frame[at/8]>>(7-at%8)&1 == 1 {
				value[len(value)-1-bit/8] |= 1 << (bit % 8)
			}
			at++
		}
		fields = append(fields, &p4v1.PacketMetadata{MetadataId: m.Id, Value: value})
	}
	return fields, frame[min(at/8, len(frame)):]
}

func (p *Pipeline) metadata(name string) []*configv1.ControllerPacketMetadata_Metadata {
	for _, h := range p.info.ControllerPacketMetadata {
		if h.Preamble.Name == name {
			return h.Metadata
		}
	}
	return nil
}

// PacketOut sends a frame to the switch's CPU port. The frame begins with the program's packet-out
// header.
func (p *Pipeline) PacketOut(frame []byte) error {
	fields, payload := p.split("packet_out", frame)
	return p.stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Packet{
		Packet: &p4v1.PacketOut{Payload: payload, Metadata: fields}}})
}

// Program implements [target.Pipeline].
func (p *Pipeline) Program() *bmv2json.Program { return p.program }

func (p *Pipeline) write(kind p4v1.Update_Type, e *p4v1.Entity) error {
	_, err := p.client.Write(context.Background(),
		&p4v1.WriteRequest{DeviceId: p.device, ElectionId: election,
			Updates: []*p4v1.Update{{Type: kind, Entity: e}}})
	for _, d := range status.Convert(err).Details() { // BMv2 reports one detail for each update.
		if e, ok := d.(*p4v1.Error); ok && e.CanonicalCode != 0 {
			err = fmt.Errorf("%w: %s", err, e.Message)
		}
	}
	return err
}

// entry converts a table entry to P4Runtime's form. It omits matches that accept any value, and
// masks values.
func (p *Pipeline) entry(table string, e *target.TableEntry) *p4v1.TableEntry {
	t := p.program.Table(table)
	out := &p4v1.TableEntry{TableId: p.ids[table], Priority: int32(e.Priority)}
	for i, m := range e.Match {
		k := t.Keys[i]
		f := &p4v1.FieldMatch{FieldId: p.ids[table+" "+k.Name]}
		kind := k.Kind
		// The match kind comes from the P4Info, because the JSON is less precise. The JSON says
		// ternary for an optional key, and for a prefix among ternary keys. It also has a kind for
		// validity keys, which are exact in the P4Info.
		for _, ti := range p.info.Tables {
			for _, mf := range ti.MatchFields {
				if ti.Preamble.Name == table && mf.Name == k.Name {
					kind = map[configv1.MatchField_MatchType]bmv2json.MatchKind{
						configv1.MatchField_EXACT:    bmv2json.MatchExact,
						configv1.MatchField_LPM:      bmv2json.MatchLPM,
						configv1.MatchField_TERNARY:  bmv2json.MatchTernary,
						configv1.MatchField_RANGE:    bmv2json.MatchRange,
						configv1.MatchField_OPTIONAL: bmv2json.MatchOptional}[mf.GetMatchType()]
				}
			}
		}
		masked := slices.Clone(m.Value)
		for j := range m.Mask {
			masked[j] &= m.Mask[j]
		}
		switch kind {
		case bmv2json.MatchExact:
			f.FieldMatchType = &p4v1.FieldMatch_Exact_{Exact: &p4v1.FieldMatch_Exact{
				Value: m.Value}}
		case bmv2json.MatchLPM:
			if m.PrefixLen == 0 {
				continue
			}
			f.FieldMatchType = &p4v1.FieldMatch_Lpm{Lpm: &p4v1.FieldMatch_LPM{Value: m.Value,
				PrefixLen: int32(m.PrefixLen)}}
		case bmv2json.MatchTernary:
			if zeros(m.Mask) {
				continue
			}
			f.FieldMatchType = &p4v1.FieldMatch_Ternary_{Ternary: &p4v1.FieldMatch_Ternary{
				Value: masked, Mask: m.Mask}}
		case bmv2json.MatchOptional:
			if zeros(m.Mask) {
				continue
			}
			f.FieldMatchType = &p4v1.FieldMatch_Optional_{Optional: &p4v1.FieldMatch_Optional{
				Value: m.Value}}
		case bmv2json.MatchRange:
			if zeros(m.Value) && allOnes(m.Mask, k.Width) {
				continue
			}
			f.FieldMatchType = &p4v1.FieldMatch_Range_{Range: &p4v1.FieldMatch_Range{Low: m.Value,
				High: m.Mask}}
		}
		out.Match = append(out.Match, f)
	}
	if e.Action != nil {
		a := &p4v1.Action{ActionId: p.ids[e.Action.Action]}
		for i, v := range e.Action.Params {
			a.Params = append(a.Params, &p4v1.Action_Param{ParamId: uint32(i + 1), Value: v})
		}
		out.Action = &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: a}}
	}
	return out
}

func zeros(b []byte) bool { return strings.Trim(string(b), "\x00") == "" }

func allOnes(b []byte, width int) bool {
	for i := range width {
		if b[len(b)-1-i/8]>>(i%8)&1 == 0 {
			return false
		}
	}
	return true
}

func tableEntity(e *p4v1.TableEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: e}}
}

// InsertEntry implements [target.Pipeline].
func (p *Pipeline) InsertEntry(table string, e *target.TableEntry) error {
	return p.write(p4v1.Update_INSERT, tableEntity(p.entry(table, e)))
}

// SetDefault implements [target.Pipeline].
func (p *Pipeline) SetDefault(table string, e *target.TableEntry) error {
	x := p.entry(table, e)
	x.IsDefaultAction = true
	return p.write(p4v1.Update_MODIFY, tableEntity(x))
}

func replicas(rs []target.Replica) (out []*p4v1.Replica) {
	for _, r := range rs {
		//lint:ignore SA1019 BMv2 does not know Replica.port, which is to replace it
		kind := &p4v1.Replica_EgressPort{EgressPort: r.Port}
		out = append(out, &p4v1.Replica{PortKind: kind, Instance: uint32(r.Instance)})
	}
	return out
}

func engineEntity(e *p4v1.PacketReplicationEngineEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: e}}
}

// MulticastGroups implements [target.Pipeline].
func (p *Pipeline) MulticastGroups() map[uint32][]target.Replica { return p.groups }

// SetMulticastGroup implements [target.Pipeline].
func (p *Pipeline) SetMulticastGroup(id uint32, rs []target.Replica) error {
	kind := p4v1.Update_MODIFY
	if _, there := p.groups[id]; !there {
		kind = p4v1.Update_INSERT
	}
	p.groups[id] = rs
	return p.write(kind, engineEntity(&p4v1.PacketReplicationEngineEntry{
		Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{
			MulticastGroupEntry: &p4v1.MulticastGroupEntry{MulticastGroupId: id,
				Replicas: replicas(rs)}}}))
}

// SetCloneSession implements [target.Pipeline].
func (p *Pipeline) SetCloneSession(id uint32, s *target.CloneSession) error {
	return p.write(p4v1.Update_INSERT, engineEntity(&p4v1.PacketReplicationEngineEntry{
		Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{
			CloneSessionEntry: &p4v1.CloneSessionEntry{SessionId: id,
				Replicas: replicas(s.Replicas), PacketLengthBytes: int32(s.TruncateTo)}}}))
}

// ReadCounter implements [target.Pipeline].
func (p *Pipeline) ReadCounter(name string, index int) (d target.CounterData, err error) {
	id, ok := p.ids[name]
	if !ok {
		return d, fmt.Errorf("the counter %s in P4Info: %w", name, target.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := p.client.Read(ctx, &p4v1.ReadRequest{DeviceId: p.device,
		Entities: []*p4v1.Entity{{Entity: &p4v1.Entity_CounterEntry{
			CounterEntry: &p4v1.CounterEntry{CounterId: id,
				Index: &p4v1.Index{Index: int64(index)}}}}}})
	if err != nil {
		return d, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return d, err
	}
	for _, e := range answer.Entities {
		if c := e.GetCounterEntry(); c != nil {
			return target.CounterData{Packets: uint64(c.Data.GetPacketCount()),
				Bytes: uint64(c.Data.GetByteCount())}, nil
		}
	}
	return d, errors.New("an answer without a counter")
}
