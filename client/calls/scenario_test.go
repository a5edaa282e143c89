package calls

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// TestScenarios runs the transcripts in testdata. To rewrite the transcripts, run the test with
// -rewrite, and check the difference. A transcript consists of these commands:
//
//	machine [addresses=(1,2)] [services=(100)] [sessions=(3:1,4:1)] [retransmit=50ms] [max-retransmit=..] [fast-retransmit=..] [retry-pause=..] [return-after=..] [at-least-once] [bits=128]
//	start NAME op=read|write|cas [key=N] [value=TEXT] [delete] [expected=V] [eventual] [to=(3)] [deadline=T] [value-bytes=N]
//	reply NAME [status=OK] [version=V] [value=TEXT] [tombstone] [from=N[:PORT]] [op=..] [key=..] [request=+N]    an answer to the last packet of a call
//	bytes HEX                                                                                            any payload
//	advance to=T                                                                                         ticks whenever something is due until then
//	cancel NAME
//	add-session ID:NEXT
//	drop-session ID
//	await-sessions on|off
//	abort-all
//	stats
//
// Each command prints what the machine sent and completed, with the time. Address N is
// 10.0.0.N:20035; in sends it appears as N.
func TestScenarios(t *testing.T) {
	playTranscripts(t, func() func(*testing.T, string, []argument) string { return (&scenario{}).run })
}

type scenario struct {
	m     *Machine
	now   time.Duration
	names map[CallID]string
	ids   map[string]CallID
	last  map[string]wire.Packet // the last packet that each call sent
	out   strings.Builder
}

func (s *scenario) run(t *testing.T, command string, args []argument) string {
	s.out.Reset()
	switch command {
	case "machine":
		s.machine(t, args)
	case "start":
		s.start(t, args)
	case "reply":
		s.reply(t, args)
	case "bytes":
		b, err := hex.DecodeString(args[0].name)
		if err != nil {
			t.Fatalf("%v", err)
		}
		s.m.Receive(s.now, address("9"), b)
	case "advance":
		s.advance(duration(t, args[0].values[0]))
	case "cancel":
		s.m.Abort(s.now, s.ids[args[0].name], ErrCanceled)
	case "add-session":
		s.addSession(t, args[0].name)
	case "drop-session":
		id, err := strconv.ParseUint(args[0].name, 10, 16)
		if err != nil {
			t.Fatalf("%v", err)
		}
		s.m.DropSession(s.now, uint16(id))
	case "await-sessions":
		s.m.AwaitSessions(s.now, args[0].name == "on")
	case "abort-all":
		s.m.AbortAll(s.now, ErrClosed)
	case "stats":
		fmt.Fprintf(&s.out, "%+v outstanding:%d sessions:%d\n", s.m.Stats(), s.m.Outstanding(), s.m.Sessions())
	default:
		t.Fatalf("unknown command %q", command)
	}
	s.flush(t)
	return s.out.String()
}

func (s *scenario) machine(t *testing.T, args []argument) {
	cfg := Config{Profile: wire.Profile128}
	addresses, services, sessions := []string{"1"}, []string(nil), []string(nil)
	for _, a := range args {
		switch a.name {
		case "addresses":
			addresses = a.values
		case "services":
			services = a.values
		case "sessions":
			sessions = a.values
		case "retransmit":
			cfg.Retransmit = duration(t, a.values[0])
		case "max-retransmit":
			cfg.MaxRetransmit = duration(t, a.values[0])
		case "fast-retransmit":
			cfg.FastRetransmit = duration(t, a.values[0])
		case "retry-pause":
			cfg.RetryPause = duration(t, a.values[0])
		case "return-after":
			cfg.ReturnAfter = duration(t, a.values[0])
		case "at-least-once":
			cfg.AtLeastOnce = true
		case "bits":
			n, err := strconv.Atoi(a.values[0])
			if err != nil {
				t.Fatalf("%v", err)
			}
			cfg.Profile = wire.Profile(n)
		default:
			t.Fatalf("unknown argument %q", a.name)
		}
	}
	for _, a := range addresses {
		if a == "" { // The argument was an empty list, such as addresses=().
			continue
		}
		cfg.Addresses = append(cfg.Addresses, address(a))
	}
	for _, a := range services {
		cfg.Services = append(cfg.Services, address(a))
	}
	s.now, s.names, s.ids, s.last = 0, map[CallID]string{}, map[string]CallID{}, map[string]wire.Packet{}
	m, err := New(cfg)
	s.m = m
	if err != nil {
		fmt.Fprintf(&s.out, "%v\n", err)
		return
	}
	// The transcripts need a fixed first number. The seed would choose another one.
	s.m.lastNum = 100
	for _, v := range sessions {
		s.addSession(t, v)
	}
}

func (s *scenario) addSession(t *testing.T, spec string) {
	var id uint16
	var next uint32
	if _, err := fmt.Sscanf(spec, "%d:%d", &id, &next); err != nil {
		t.Fatalf("%v", err)
	}
	if err := s.m.AddSession(s.now, Session{id, next}); err != nil {
		fmt.Fprintf(&s.out, "%v\n", err)
	}
}

func (s *scenario) start(t *testing.T, args []argument) {
	name := args[0].name
	req := Request{Key: wire.MakeKey(1, 7), Tag: name}
	for _, a := range args[1:] {
		switch a.name {
		case "op":
			req.Op = map[string]wire.Op{"read": wire.Read, "write": wire.Write, "cas": wire.CAS, "sync": wire.Sync}[a.values[0]]
		case "key":
			req.Key = parsed(t, wire.ParseKey, a.values[0])
		case "value":
			req.Value = []byte(a.values[0])
		case "value-bytes":
			n, err := strconv.Atoi(a.values[0])
			if err != nil {
				t.Fatalf("%v", err)
			}
			req.Value = make([]byte, n)
		case "delete":
			req.Delete = true
		case "expected":
			req.Expected = parsed(t, wire.ParseVersion, a.values[0])
		case "eventual":
			req.Eventual = true
		case "to":
			req.To = []netip.AddrPort{}
			for _, v := range a.values {
				if v != "" {
					req.To = append(req.To, address(v))
				}
			}
		case "deadline":
			req.Deadline = duration(t, a.values[0])
		default:
			t.Fatalf("unknown argument %q", a.name)
		}
	}
	// The call's name must be recorded before Start, because the call may complete during Start.
	id := s.m.lastID + 1
	s.names[id], s.ids[name] = name, id
	if got := s.m.Start(s.now, req); got != id {
		t.Fatalf("call %d, want %d", got, id)
	}
}

func (s *scenario) reply(t *testing.T, args []argument) {
	name := args[0].name
	asked, ok := s.last[name]
	if !ok {
		t.Fatalf("%s has sent nothing", name)
	}
	p := wire.Packet{Epoch: 1, Session: asked.Session, Request: asked.Request, Key: asked.Key, Version: asked.Version}
	p.Op, _ = asked.Op.Reply()
	from := address("1")
	for _, a := range args[1:] {
		switch a.name {
		case "status":
			for p.Status.String() != a.values[0] {
				if p.Status++; p.Status == 0 {
					t.Fatalf("no status %q", a.values[0])
				}
			}
		case "version":
			p.Version = parsed(t, wire.ParseVersion, a.values[0])
		case "value":
			p.Value = []byte(a.values[0])
		case "tombstone":
			p.Tombstone = true
		case "from":
			from = address(a.values[0])
		case "op":
			for p.Op.String() != a.values[0] {
				p.Op++
			}
		case "key":
			p.Key = parsed(t, wire.ParseKey, a.values[0])
		case "request":
			n, err := strconv.Atoi(a.values[0])
			if err != nil {
				t.Fatalf("%v", err)
			}
			p.Request += uint32(n)
		default:
			t.Fatalf("unknown argument %q", a.name)
		}
	}
	b, err := p.Marshal(s.m.cfg.Profile)
	if err != nil {
		t.Fatalf("%v", err)
	}
	s.m.Receive(s.now, from, b)
	for i := range b { // Overwriting the payload shows whether the machine still uses it.
		b[i] = 0xEE
	}
}

// advance moves time forward, and ticks the machine whenever a timer is due.
func (s *scenario) advance(to time.Duration) {
	for {
		at, ok := s.m.NextTick()
		if !ok || at > to {
			break
		}
		s.now = max(s.now, at)
		s.m.Tick(s.now)
		s.flush(nil)
	}
	s.now = to
}

// flush prints the packets that the machine sent and the calls that it completed.
func (s *scenario) flush(t *testing.T) {
	if s.m == nil {
		return
	}
	sends, completions := s.m.Take()
	for _, send := range sends {
		var p wire.Packet
		if err := p.Unmarshal(send.Packet, s.m.cfg.Profile); err != nil {
			panic(err)
		}
		name := "?"
		if c := s.m.pending[pendingKey{p.Session, p.Request}]; c != nil {
			name = s.names[c.id]
		}
		s.last[name] = p
		fmt.Fprintf(&s.out, "%v %s: send to %v: %v\n", s.now, name, send.To.Addr().As4()[3], &p)
	}
	for _, c := range completions {
		if c.Tag != s.names[c.ID] {
			panic(fmt.Sprintf("the tag of %q is %v", s.names[c.ID], c.Tag))
		}
		s.complete(c)
	}
}

func (s *scenario) complete(c Completion) {
	r := c.Result
	fmt.Fprintf(&s.out, "%v %s: done ", s.now, s.names[c.ID])
	if r.Err != nil {
		var e *OpError
		if !errors.As(r.Err, &e) {
			panic("no OpError")
		}
		fmt.Fprintf(&s.out, "error: %v\n", e)
		return
	}
	fmt.Fprintf(&s.out, "version=%v value=%q rtt=%v attempts=%d from=%d", r.Version, r.Value, r.RTT, r.Attempts, r.From.Addr().As4()[3])
	if r.Superseded {
		fmt.Fprint(&s.out, " superseded")
	}
	fmt.Fprintln(&s.out)
}

func address(n string) netip.AddrPort {
	if !strings.Contains(n, ":") {
		n += ":20035"
	}
	return netip.MustParseAddrPort("10.0.0." + n)
}

func duration(t *testing.T, s string) time.Duration {
	v, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return v
}

func parsed[T any](t *testing.T, parse func(string) (T, error), s string) T {
	v, err := parse(s)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return v
}
