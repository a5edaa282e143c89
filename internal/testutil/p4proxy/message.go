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

// Kind is what a message is.
type Kind int

// The kinds of messages. Arbitration has none: the proxy passes it on at once, whatever the rules.
const (
	PacketOut Kind = iota // on the stream, to the switch
	PacketIn              // on the stream, to the controller
	Write
	Read
	Program // SetForwardingPipelineConfig
	Other   // everything else: GetForwardingPipelineConfig, digests, stream errors, ...
)

func (k Kind) String() string {
	return [...]string{"packet-out", "packet-in", "Write", "Read", "SetForwardingPipelineConfig", "other message"}[k]
}

// Message is one message that passes the proxy.
type Message struct {
	Kind Kind
	// Reply: it is the switch's answer to the call, which the switch has executed.
	Reply bool
	// Of is the names of the tables, registers, counters and meters that a Write or a Read is
	// about, by the P4Info, without repetitions; "multicast_group" for one.
	Of []string
	// Payload is the frame of a packet.
	Payload []byte
	// Body is the message itself; of a reply, the request.
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

// Match says whether a rule is for a message. It must not keep or change the message.
type Match func(*Message) bool

// Kinds matches messages of some kinds, but no answers.
func Kinds(kinds ...Kind) Match {
	return func(m *Message) bool { return !m.Reply && slices.Contains(kinds, m.Kind) }
}

// Writes matches Writes that change one of the tables at least.
func Writes(tables ...string) Match {
	return func(m *Message) bool {
		return m.Kind == Write && !m.Reply &&
			slices.ContainsFunc(m.Of, func(of string) bool { return slices.Contains(tables, of) })
	}
}

// WritesBut matches Writes that change none of the tables.
func WritesBut(tables ...string) Match {
	return func(m *Message) bool { return m.Kind == Write && !m.Reply && !Writes(tables...)(m) }
}

// Answers matches the answers to the calls that match.
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

// All matches what all of them match.
func All(matches ...Match) Match {
	return func(m *Message) bool {
		return !slices.ContainsFunc(matches, func(match Match) bool { return !match(m) })
	}
}

// Any matches what one of them matches.
func Any(matches ...Match) Match {
	return func(m *Message) bool {
		return slices.ContainsFunc(matches, func(match Match) bool { return match(m) })
	}
}

// names are what a P4Info calls things.
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

// ofCall is the message that a call's request is.
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

// ofStream is the message that came on a stream, from the controller (out) or from the switch; nil:
// it is not to be caught.
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
