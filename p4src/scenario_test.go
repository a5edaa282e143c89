package p4src

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// The scenarios in testdata/scenarios specify what one switch does with its packets. Each scenario
// has commands, and the transcript that they must produce. People can read scenarios, and scenarios
// run on any target. TestScenarios runs them on the interpreter in this process, and TestTargets on
// switches over P4Runtime and real interfaces.
//
//	switch [profile=128]                           a new switch with the program and empty tables
//	port PORT fabric|closed | port PORT host principal=P [address=A] [open]    port_trust
//	lease SESSION[-SESSION] PORT | no-lease SESSION     session_lease
//	grant P REALM [read] [write]                   access; the default is nothing
//	rate PORT PACKETS                              host_rate: accepts that many packets, and none after them
//	address ADDR                                   local_address
//	peer CHAIN PORT [predecessor] [tail] [member]  chain_peer; peer none: its default entry
//	chain N role=R epoch=E [frozen] [lease] [head=A next=A tail=A service=A ack-group=G reply-group=G]
//	no-chain N
//	slot KEY N [realm=R] | no-slot KEY | store ADDR     key_index; the default realm is 1
//	route PREFIX port=N mac=M | route PREFIX controller
//	group ID PORT:INSTANCE ...                     a multicast group
//	send PORT OP key=K [flags=F|F] [epoch= session= request= version= value= tombstone status= principal=] [from=A:P] [to=A:P] [ttl=N] [spoil=HOW]
//
// A directive may have several lines, and each line is one command. The transcript of a packet has
// the frames that leave the switch, by port, and the event that the switch counted for the packet.
// spoil damages the frame on purpose; the function spoil has the ways.

// device is a switch under test. It uses the table names that are the aliases in P4Info.
type device interface {
	// set inserts an entry, or modifies an existing entry. The method remove uses only the match of
	// the entry.
	set(p4rt.Entry) error
	remove(p4rt.Entry) error
	group(p4rt.Group) error
	// rate limits the packets of the host at a port. The switch accepts the given number of
	// packets, and then none.
	rate(port uint32, packets int64) error
	// send sends a frame to the switch at a port. It returns the frames that the switch sends until
	// it is idle again.
	send(port uint32, frame []byte) ([]output, error)
	events() ([]uint64, error)
}

type output struct {
	port  uint32
	frame []byte
}

const controllerPort = 510

// scenario is the state of a scenario file while it runs.
type scenario struct {
	open    func(t *testing.T, profile int) device
	device  device
	profile wire.Profile
	names   map[int]string // names of events by the event's number
	sent    int            // number of packets sent so far
}

func eventNames(t *testing.T) map[int]string {
	t.Helper()
	source, err := os.ReadFile("include/events.p4")
	if err != nil {
		t.Fatal(err)
	}
	names := map[int]string{}
	for _, m := range regexp.MustCompile(`const bit<8> EVENT_(\w+)\s*= (\d+);`).FindAllStringSubmatch(string(source), -1) {
		n, _ := strconv.Atoi(m[2])
		names[n] = m[1]
	}
	if len(names) < 30 {
		t.Fatalf("only %d events found in include/events.p4", len(names))
	}
	return names
}

// run runs one scenario file against a target.
func (s *scenario) run(t *testing.T, file string) {
	s.names = eventNames(t)
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for _, line := range commandLines(d) {
			if err := s.command(t, &out, line); err != nil {
				fmt.Fprintf(&out, "error: %v\n", err)
			}
		}
		if out.Len() == 0 {
			return "ok\n"
		}
		return out.String()
	})
}

// commandLines returns the commands of a directive: the directive itself, or each line of its
// input.
func commandLines(d *datadriven.TestData) []string {
	lines := []string{strings.TrimSpace(d.Cmd + " " + joinArgs(d))}
	if d.Input == "" {
		return lines
	}
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		lines = append(lines, d.Cmd+" "+line)
	}
	if joinArgs(d) == "" {
		return lines[1:]
	}
	return lines
}

func joinArgs(d *datadriven.TestData) string {
	var words []string
	for _, a := range d.CmdArgs {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// words splits a command into its positional words and its key=value options.
func words(line string) (positional []string, options map[string]string) {
	options = map[string]string{}
	for _, w := range strings.Fields(line) {
		if k, v, ok := strings.Cut(w, "="); ok {
			options[k] = v
		} else {
			positional = append(positional, w)
		}
	}
	return positional, options
}

func (s *scenario) command(t *testing.T, out *strings.Builder, line string) error {
	p, o := words(line)
	need := func(n int) error {
		if len(p) != n+1 {
			return fmt.Errorf("%s takes %d words: %q", p[0], n, line)
		}
		return nil
	}
	switch p[0] {
	case "switch":
		profile := 128
		if v := o["profile"]; v != "" {
			profile, _ = strconv.Atoi(v)
		}
		s.profile, s.device = wire.Profile(profile), s.open(t, profile)
		return nil
	case "port":
		e := p4rt.Entry{Table: "port_trust", Match: p4rt.Match{"ingress_port": p4rt.Exact(number(p[1]))}, Action: p[2] + "_port"}
		if p[2] == "host" {
			e.Params = p4rt.Params{"principal": number(o["principal"]), "address": uint64(0)}
			if v := o["address"]; v != "" {
				e.Params["address"] = address(v)
			}
			if slices.Contains(p, "open") {
				e.Action = "open_host_port"
			}
		}
		return s.device.set(e)
	case "lease", "no-lease":
		first, last, several := strings.Cut(p[1], "-")
		if !several {
			last = first
		}
		for id := number(first); id <= number(last); id++ {
			e := p4rt.Entry{Table: "session_lease", Match: p4rt.Match{"session": p4rt.Exact(id)}, Action: "leased_to"}
			change := s.device.remove
			if p[0] == "lease" {
				e.Params = p4rt.Params{"port": number(p[2])}
				change = s.device.set
			}
			if err := change(e); err != nil {
				return err
			}
		}
		return nil
	case "grant":
		right := func(name string) uint64 {
			if slices.Contains(p, name) {
				return 1
			}
			return 0
		}
		return s.device.set(p4rt.Entry{Table: "access", Match: p4rt.Match{"principal": p4rt.Exact(number(p[1])),
			"realm": p4rt.Exact(number(p[2]))}, Action: "grant",
			Params: p4rt.Params{"read": right("read"), "write": right("write")}})
	case "rate":
		return s.device.rate(uint32(number(p[1])), int64(number(p[2])))
	case "address":
		return s.device.set(p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(address(p[1]))}, Action: "set_local"})
	case "peer":
		bit := func(name string) uint64 {
			if slices.Contains(p, name) {
				return 1
			}
			return 0
		}
		e := p4rt.Entry{Table: "chain_peer", Action: "peer", Default: p[1] == "none",
			Params: p4rt.Params{"predecessor": bit("predecessor"), "tail": bit("tail"), "member": bit("member")}}
		if !e.Default {
			e.Match = p4rt.Match{"chain": p4rt.Exact(number(p[1])), "ingress_port": p4rt.Exact(number(p[2]))}
		}
		return s.device.set(e)
	case "chain", "no-chain":
		e := p4rt.Entry{Table: "chain_config", Match: p4rt.Match{"chain": p4rt.Exact(number(p[1]))}, Action: "set_chain"}
		if p[0] == "no-chain" {
			return s.device.remove(e)
		}
		roles := map[string]uint64{"NONE": 0, "REPLICA": 1, "HEAD": 2, "TAIL": 3, "HEAD_TAIL": 4, "SHADOW": 5}
		role, ok := roles[o["role"]]
		if !ok {
			return fmt.Errorf("no such role %q", o["role"])
		}
		flag := func(name string) uint64 {
			if slices.Contains(p, name) {
				return 1
			}
			return 0
		}
		e.Params = p4rt.Params{"role": role, "frozen": flag("frozen"), "lease_required": flag("lease"), "epoch": number(o["epoch"]),
			"head_addr": address(o["head"]), "next_addr": address(o["next"]), "tail_addr": address(o["tail"]), "service_addr": address(o["service"]),
			"ack_group": number(o["ack-group"]), "reply_group": number(o["reply-group"])}
		return s.device.set(e)
	case "watched-chain":
		return s.device.set(p4rt.Entry{Table: "watched_chain", Match: p4rt.Match{"chain": p4rt.Exact(number(p[1]))},
			Action: "watch_groups", Params: p4rt.Params{"epoch": number(o["epoch"]), "watch_ack_group": number(o["ack-group"]),
				"watch_reply_group": number(o["reply-group"])}})
	case "watched-key", "no-watched-key":
		e := p4rt.Entry{Table: "watched_key", Match: p4rt.Match{"KEY_ID": p4rt.Exact(number(p[1]))}, Action: "watched"}
		if p[0] == "no-watched-key" {
			return s.device.remove(e)
		}
		return s.device.set(e)
	case "watcher":
		mac, err := strconv.ParseUint(strings.ReplaceAll(o["mac"], ":", ""), 16, 48)
		if err != nil {
			return fmt.Errorf("mac %q: %w", o["mac"], err)
		}
		return s.device.set(p4rt.Entry{Table: "watcher", Match: p4rt.Match{"egress_port": p4rt.Exact(number(p[1])),
			"KEY_ID": p4rt.Exact(number(p[2]))}, Action: "notify", Params: p4rt.Params{"dst_mac": mac,
			"address": address(o["address"]), "udp_port": number(o["udp"])}})
	case "slot", "no-slot":
		e := p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY_ID": p4rt.Exact(number(p[1]))}, Action: "set_slot"}
		if p[0] == "no-slot" {
			return s.device.remove(e)
		}
		if err := need(2); err != nil {
			return err
		}
		realm := uint64(1)
		if v := o["realm"]; v != "" {
			realm = number(v)
		}
		e.Params = p4rt.Params{"slot": number(p[2]), "realm": realm}
		return s.device.set(e)
	case "store":
		return s.device.set(p4rt.Entry{Table: "key_index", Default: true, Action: "backing_store", Params: p4rt.Params{"addr": address(p[1])}})
	case "route":
		prefix, err := netip.ParsePrefix(p[1])
		if err != nil {
			return err
		}
		e := p4rt.Entry{Table: "ipv4_lpm",
			Match: p4rt.Match{"ipv4_dst": p4rt.LPM(address(prefix.Addr().String()), prefix.Bits())}, Action: "to_controller"}
		if !slices.Contains(p, "controller") {
			mac, err := strconv.ParseUint(strings.ReplaceAll(o["mac"], ":", ""), 16, 48)
			if err != nil {
				return fmt.Errorf("mac %q: %w", o["mac"], err)
			}
			e.Action, e.Params = "forward", p4rt.Params{"dst_mac": mac, "port": number(o["port"])}
		}
		return s.device.set(e)
	case "group":
		g := p4rt.Group{ID: uint32(number(p[1]))}
		for _, w := range p[2:] {
			port, instance, _ := strings.Cut(w, ":")
			g.Replicas = append(g.Replicas, p4rt.Replica{Port: uint32(number(port)),
				Instance: uint32(number(instance))})
		}
		return s.device.group(g)
	case "send":
		return s.send(out, p, o)
	}
	return fmt.Errorf("no such command %q", p[0])
}

func (s *scenario) send(out *strings.Builder, p []string, o map[string]string) error {
	port := uint32(number(p[1]))
	frame, err := s.frame(p, o)
	if err != nil {
		return err
	}
	if port == controllerPort {
		frame = append([]byte{0, 0x40}, frame...) // packet-out header with submit_to_ingress
		if v := o["out"]; v != "" {
			binary.BigEndian.PutUint16(frame, uint16(number(v))<<7)
		}
	}
	before, err := s.device.events()
	if err != nil {
		return err
	}
	outputs, err := s.device.send(port, frame)
	if err != nil {
		return err
	}
	after, err := s.device.events()
	if err != nil {
		return err
	}
	s.sent++
	sort.Slice(outputs, func(i, j int) bool {
		if outputs[i].port != outputs[j].port {
			return outputs[i].port < outputs[j].port
		}
		return bytes.Compare(outputs[i].frame, outputs[j].frame) < 0
	})
	event := "no event"
	for i := range after {
		switch {
		case after[i] == before[i]:
		case after[i] == before[i]+1 && event == "no event":
			event = s.names[i]
		default:
			return fmt.Errorf("one packet counted %d of event %s, beside %s", after[i]-before[i], s.names[i], event)
		}
	}
	fmt.Fprintf(out, "%s\n", event)
	for _, x := range outputs {
		fmt.Fprintf(out, "  %s\n", s.describe(x))
	}
	return nil
}

// frame builds the frame that a `send` command describes.
func (s *scenario) frame(p []string, o map[string]string) ([]byte, error) {
	ops := map[string]wire.Op{}
	for op := wire.Op(0); op < 255; op++ {
		if op.Valid() {
			ops[op.String()] = op
		}
	}
	op, ok := ops[p[2]]
	if !ok {
		return nil, fmt.Errorf("no such op %q", p[2])
	}
	packet := wire.Packet{Op: op, Epoch: uint16(number(o["epoch"])), Session: uint16(number(o["session"])),
		Request: uint32(number(o["request"])),
		Key:     wire.Key(number(o["key"])), Value: []byte(o["value"]), Tombstone: slices.Contains(p, "tombstone")}
	if v := o["version"]; v != "" {
		version, err := wire.ParseVersion(v)
		if err != nil {
			return nil, err
		}
		packet.Version = version
	}
	for _, f := range strings.FieldsFunc(o["flags"], func(r rune) bool { return r == '|' }) {
		flag := wire.Flags(0)
		for b := wire.Flags(1); b != 0; b <<= 1 {
			if b.String() == f {
				flag = b
			}
		}
		if flag == 0 {
			return nil, fmt.Errorf("no such flag %q", f)
		}
		packet.Flags |= flag
	}
	if v := o["status"]; v != "" {
		packet.Status = 255
		for st := wire.Status(0); st.Valid(); st++ {
			if st.String() == v {
				packet.Status = st
			}
		}
		if packet.Status == 255 {
			return nil, fmt.Errorf("no such status %q", v)
		}
	}
	payload, err := packet.Marshal(s.profile)
	if err != nil {
		return nil, err
	}
	f := wire.Frame{EthernetDst: [6]byte{2, 0, 0, 0, 0, 0xA}, EthernetSrc: [6]byte{2, 0, 0, 0, 0, 0xB},
		Src: netip.MustParseAddrPort("10.0.1.1:4000"),
		Dst: netip.MustParseAddrPort("10.0.100.1:20035")}
	if op.IsReply() {
		f.Src, f.Dst = f.Dst, f.Src
	}
	for option, end := range map[string]*netip.AddrPort{"from": &f.Src, "to": &f.Dst} {
		if v := o[option]; v != "" {
			if *end, err = netip.ParseAddrPort(v); err != nil {
				return nil, err
			}
		}
	}
	f.Principal = 1 // the principal that the first switch sets for the host h
	if v := o["principal"]; v != "" {
		f.Principal = uint16(number(v))
	}
	frame, err := f.AppendTo(nil, payload)
	if err != nil {
		return nil, err
	}
	if v := o["ttl"]; v != "" {
		frame[14+8] = byte(number(v))
		fixChecksum(frame)
	}
	return spoil(frame, o["spoil"])
}

// spoil damages a frame in a named way.
func spoil(frame []byte, how string) ([]byte, error) {
	ip, udp, netcraq := frame[14:], frame[34:], frame[42:]
	what, value, _ := strings.Cut(how, ":")
	n := number(value)
	switch what {
	case "":
	case "cut": // cut n bytes from the end of the frame
		return frame[:len(frame)-int(n)], nil
	case "cut-honestly": // cut n bytes from the end, and correct the lengths
		frame = frame[:len(frame)-int(n)]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(frame)-14))
		binary.BigEndian.PutUint16(udp[4:], uint16(len(frame)-34))
	case "grow": // append n bytes, and correct the lengths
		frame = append(frame, make([]byte, n)...)
		ip, udp = frame[14:], frame[34:]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(frame)-14))
		binary.BigEndian.PutUint16(udp[4:], uint16(len(frame)-34))
	case "ip-length":
		binary.BigEndian.PutUint16(ip[2:], uint16(n))
	case "udp-length":
		binary.BigEndian.PutUint16(udp[4:], uint16(n))
	case "op":
		netcraq[0] = byte(n)
	case "flags":
		netcraq[1] = byte(n)
	case "length":
		binary.BigEndian.PutUint16(netcraq[6:], uint16(n))
	case "ethertype":
		binary.BigEndian.PutUint16(frame[12:], uint16(n))
	case "protocol":
		ip[9] = byte(n)
	case "fragment": // set the word of flags and fragment offset to n
		binary.BigEndian.PutUint16(ip[6:], uint16(n))
	case "ihl": // set the header length to n, without adding options
		ip[0] = 0x40 | byte(n)
	case "options": // add n words of options, of four NOPs each
		with := append(slices.Clone(frame[:34]), bytes.Repeat([]byte{1}, 4*int(n))...)
		frame = append(with, frame[34:]...)
		ip = frame[14:]
		ip[0] += byte(n)
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	case "tag": // add an 802.1Q or 802.1ad tag of type n
		with := append(slices.Clone(frame[:12]), byte(n>>8), byte(n), 0, 0)
		return append(with, frame[12:]...), nil
	case "checksum":
		ip[10] ^= 0xFF
		return frame, nil
	default:
		return nil, fmt.Errorf("no such way to spoil a frame: %q", how)
	}
	fixChecksum(frame)
	return frame, nil
}

func fixChecksum(frame []byte) {
	ip := frame[14:]
	ip = ip[:min(4*int(ip[0]&15), len(ip))]
	ip[10], ip[11] = 0, 0
	var sum uint32
	for i := 0; i+1 < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

// describe describes a frame that left the switch, without the values that depend on the switch's
// clock.
func (s *scenario) describe(x output) string {
	frame := x.frame
	where := fmt.Sprintf("port %d", x.port)
	if x.port == controllerPort {
		if len(frame) < 2 {
			return where + ": no packet_in header"
		}
		where = fmt.Sprintf("controller (came by port %d)", binary.BigEndian.Uint16(frame)>>7)
		frame = frame[2:]
	}
	f, payload, err := wire.ParseFrame(frame)
	if err != nil {
		return fmt.Sprintf("%s: %d bytes %x", where, len(frame), frame)
	}
	var packet wire.Packet
	if err := packet.Unmarshal(payload, s.profile); err != nil {
		return fmt.Sprintf("%s: %v -> %v ttl %d: %d bytes (%v)", where, f.Src, f.Dst, frame[22], len(payload), err)
	}
	if packet.Op == wire.LeaseReply {
		packet.Version = 0
		if packet.Request != 0 {
			packet.Request = 1
		}
	}
	if f.Principal != 1 && !packet.Op.IsReply() && packet.Op != wire.Ack {
		where += fmt.Sprintf(" principal %d", f.Principal)
	}
	text := fmt.Sprintf("%s: %v -> %v ttl %d: %v", where, f.Src, f.Dst, frame[22], packet.String())
	if len(packet.Value) > 64 {
		text += fmt.Sprintf(" (sha256 %.4x)", sha256.Sum256(packet.Value))
	}
	return text
}

func number(s string) uint64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		panic(fmt.Sprintf("not a number: %q", s))
	}
	return n
}

func address(s string) uint64 {
	if s == "" {
		return 0
	}
	return uint64(binary.BigEndian.Uint32(netip.MustParseAddr(s).AsSlice()))
}
