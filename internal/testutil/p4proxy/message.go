package p4proxy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"
)

// Kind is the kind of a message.
type Kind int

// These are the kinds of messages. Arbitration has no kind, because the proxy always passes it on
// at once.
const (
	PacketOut Kind = iota // a message on the stream, to the switch
	PacketIn              // a message on the stream, to the controller
	Write
	Read
	Program // a call of SetForwardingPipelineConfig
	Other   // all other messages: GetForwardingPipelineConfig, digests, stream errors, ...
)

func (k Kind) String() string {
	return [...]string{"packet-out", "packet-in", "Write", "Read", "SetForwardingPipelineConfig", "other message"}[k]
}

// Message is one message that passes the proxy.
type Message struct {
	Kind Kind
	// Reply says that the message is the switch's answer to an executed call.
	Reply bool
	// Of lists the tables, registers, counters and meters in a Write or a Read, without
	// repetitions. It has their names from the P4Info, and "multicast_group" for multicast groups.
	Of []string
	// Payload is the frame of a packet-out or a packet-in.
	Payload []byte
	// Body is the message itself. For a reply, Body is the request.
	Body proto.Message
}

func (m *Message) String() string {
	text := m.Kind.String()
	if m.Reply {
		text = "answer to a " + text
	}
	if len(m.Of) > 0 {
		text += " of " + strings.Join(m.Of, ", ")
	}
	return text
}

// Match reports whether a rule applies to a message. A Match must not keep or change the message.
type Match func(*Message) bool

// Kinds returns a Match for messages of these kinds, but not for answers.
func Kinds(kinds ...Kind) Match {
	return func(m *Message) bool { return !m.Reply && slices.Contains(kinds, m.Kind) }
}

// Writes returns a Match for Writes that change at least one of the tables.
func Writes(tables ...string) Match {
	return func(m *Message) bool {
		return m.Kind == Write && !m.Reply &&
			slices.ContainsFunc(m.Of, func(of string) bool { return slices.Contains(tables, of) })
	}
}

// WritesBut returns a Match for Writes that change none of the tables.
func WritesBut(tables ...string) Match {
	return func(m *Message) bool { return m.Kind == Write && !m.Reply && !Writes(tables...)(m) }
}

// Answers returns a Match for the answers to the calls that another Match matches.
func Answers(match Match) Match {
	return func(m *Message) bool {
		if !m.Reply {
			return false
		}
		request := *m
		request.Reply = false
		return match(&request)
	}
}

// All returns a Match for messages that all of the given matches match.
func All(matches ...Match) Match {
	return func(m *Message) bool {
		return !slices.ContainsFunc(matches, func(match Match) bool { return !match(m) })
	}
}

// Any returns a Match for messages that at least one of the given matches matches.
func Any(matches ...Match) Match {
	return func(m *Message) bool {
		return slices.ContainsFunc(matches, func(match Match) bool { return match(m) })
	}
}

// names maps ids of objects in a P4Info to their names.
type names map[uint32]string

func namesOf(info *configv1.P4Info) names {
	out := names{}
	add := func(p *configv1.Preamble) { out[p.GetId()] = p.GetAlias() }
	for _, t := range info.GetTables() {
		add(t.Preamble)
	}
	for _, r := range info.GetRegisters() {
		add(r.Preamble)
	}
	for _, c := range info.GetCounters() {
		add(c.Preamble)
	}
	for _, m := range info.GetMeters() {
		add(m.Preamble)
	}
	return out
}

func (n names) of(entities []*v1.Entity) (out []string) {
	for _, e := range entities {
		var name string
		switch x := e.GetEntity().(type) {
		case *v1.Entity_TableEntry:
			name = n[x.TableEntry.TableId]
		case *v1.Entity_RegisterEntry:
			name = n[x.RegisterEntry.RegisterId]
		case *v1.Entity_CounterEntry:
			name = n[x.CounterEntry.CounterId]
		case *v1.Entity_MeterEntry:
			name = n[x.MeterEntry.MeterId]
		case *v1.Entity_PacketReplicationEngineEntry:
			if x.PacketReplicationEngineEntry.GetMulticastGroupEntry() != nil {
				name = "multicast_group"
			}
		}
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// ofCall returns the Message for a call's request.
func (n names) ofCall(method string, raw []byte) (*Message, error) {
	m := &Message{Kind: Other}
	switch path.Base(method) {
	case "Write":
		r := &v1.WriteRequest{}
		m.Kind, m.Body = Write, r
		if err := proto.Unmarshal(raw, r); err != nil {
			return nil, fmt.Errorf("a Write: %w", err)
		}
		var entities []*v1.Entity
		for _, u := range r.Updates {
			entities = append(entities, u.Entity)
		}
		m.Of = n.of(entities)
	case "Read":
		r := &v1.ReadRequest{}
		m.Kind, m.Body = Read, r
		if err := proto.Unmarshal(raw, r); err != nil {
			return nil, fmt.Errorf("a Read: %w", err)
		}
		m.Of = n.of(r.Entities)
	case "SetForwardingPipelineConfig":
		r := &v1.SetForwardingPipelineConfigRequest{}
		m.Kind, m.Body = Program, r
		if err := proto.Unmarshal(raw, r); err != nil {
			return nil, fmt.Errorf("a SetForwardingPipelineConfig: %w", err)
		}
	}
	return m, nil
}

// ofStream returns the Message for a stream message, which comes from the controller (out) or from
// the switch. It returns nil if rules do not apply to the message.
func ofStream(raw []byte, out bool) (*Message, error) {
	if out {
		r := &v1.StreamMessageRequest{}
		if err := proto.Unmarshal(raw, r); err != nil {
			return nil, fmt.Errorf("a message of the controller's on the stream: %w", err)
		}
		switch u := r.Update.(type) {
		case *v1.StreamMessageRequest_Arbitration:
			return nil, nil
		case *v1.StreamMessageRequest_Packet:
			return &Message{Kind: PacketOut, Payload: u.Packet.GetPayload(), Body: r}, nil
		}
		return &Message{Kind: Other, Body: r}, nil
	}
	r := &v1.StreamMessageResponse{}
	if err := proto.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("a message of the switch's on the stream: %w", err)
	}
	switch u := r.Update.(type) {
	case *v1.StreamMessageResponse_Arbitration:
		return nil, nil
	case *v1.StreamMessageResponse_Packet:
		return &Message{Kind: PacketIn, Payload: u.Packet.GetPayload(), Body: r}, nil
	}
	return &Message{Kind: Other, Body: r}, nil
}
