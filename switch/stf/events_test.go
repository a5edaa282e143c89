package stf_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
)

// events records the steps that the interpreter reports.
type events struct{ all []interp.Event }

func (e *events) Wanted() bool         { return true }
func (e *events) Event(x interp.Event) { e.all = append(e.all, x) }

// compare compares the steps of each packet and its copies with the steps that BMv2 reported.
// BMv2's threads report several packets at the same time, and number simultaneous copies in
// arbitrary order. compare ignores the packets in otherwise, which are known to differ.
func (e *events) compare(t *testing.T, s *subscription, otherwise map[uint64]bool) {
	t.Helper()
	ours := byPacket(e.all)
	var theirs map[uint64]string
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		got := s.got
		s.mu.Unlock()
		theirs = byPacket(got)
		if len(got) >= len(e.all) || time.Since(begun) > 5*time.Second {
			break
		}
	}
	if len(theirs) == 0 {
		t.Log("this BMv2 publishes no events")
		return
	}
	if len(ours) != len(theirs) {
		t.Errorf("events of %d packets; BMv2 publishes those of %d", len(ours), len(theirs))
	}
	different := 0
	for id, x := range ours {
		if y := theirs[id]; x != y && !otherwise[id] {
			if different++; different < 4 {
				t.Errorf("steps of packet %d\n interp %s\n BMv2   %s", id, x, y)
			}
		}
	}
	t.Logf("%d steps of %d packets", len(e.all), len(ours))
}

// byPacket returns the steps of each packet, followed by the steps of its copies, sorted by
// content. It includes a copy's number only if there is a single copy. If there are several, BMv2
// numbers them arbitrarily, and gives some numbers to copies without steps.
func byPacket(all []interp.Event) map[uint64]string {
	by, order := steps(all)
	copies, numbers := map[uint64][]string{}, map[uint64][]uint64{}
	out := map[uint64]string{}
	for _, name := range order {
		text := fmt.Sprintf("%016x: %s", name.Signature, by[name])
		if name.Copy == 0 {
			out[name.ID] = text
			continue
		}
		copies[name.ID] = append(copies[name.ID], text)
		numbers[name.ID] = append(numbers[name.ID], name.Copy)
	}
	for id, of := range copies {
		slices.Sort(of)
		out[id] += "\n  " + strings.Join(of, "\n  ")
		if len(of) == 1 {
			out[id] += fmt.Sprintf("\n  number %d", numbers[id][0])
		}
	}
	return out
}

// steps returns the steps of each packet as text, and the names of the packets in order.
func steps(all []interp.Event) (by map[interp.PacketName]string, order []interp.PacketName) {
	by = map[interp.PacketName]string{}
	for _, e := range all {
		if e.Kind == interp.EventConfigChange {
			continue
		}
		if by[e.Packet] == "" {
			order = append(order, e.Packet)
		}
		by[e.Packet] += fmt.Sprintf("%d:%d:%d ", e.Kind, e.ID, e.Value)
	}
	return by, order
}

// subscription collects the messages that arrive at a nanomsg socket.
type subscription struct {
	mu  sync.Mutex
	got []interp.Event
}

// steps returns the number of steps of packets that were reported so far.
func (s *subscription) steps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return stepsOf(s.got)
}

// stepsOf returns how many of the events are steps of packets.
func stepsOf(all []interp.Event) (n int) {
	for _, e := range all {
		if e.Kind != interp.EventConfigChange {
			n++
		}
	}
	return n
}

// subscribe connects to a nanomsg socket that does not have to exist yet.
func subscribe(t *testing.T, path string) *subscription {
	t.Helper()
	var c net.Conn
	var err error
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if c, err = net.Dial("unix", path); err == nil {
			break
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = c.Close() })
	heard := make([]byte, 8)
	if _, err := c.Write([]byte("\x00SP\x00\x00\x21\x00\x00")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, heard); err != nil || !strings.HasPrefix(string(heard), "\x00SP") {
		t.Fatalf("the publisher says %q: %v", heard, err)
	}
	s := &subscription{}
	go func() {
		header := make([]byte, 9) // nanomsg's type byte and the length of the message
		for {
			if _, err := io.ReadFull(c, header); err != nil {
				return
			}
			m := make([]byte, binary.BigEndian.Uint64(header[1:]))
			if _, err := io.ReadFull(c, m); err != nil || len(m) < 40 {
				return
			}
			number := binary.LittleEndian
			e := interp.Event{Kind: interp.EventKind(number.Uint32(m)),
				Packet: interp.PacketName{Signature: number.Uint64(m[16:]), ID: number.Uint64(m[24:]),
					Copy: number.Uint64(m[32:])}}
			if len(m) >= 44 {
				e.ID = int(int32(number.Uint32(m[40:])))
			}
			if len(m) >= 48 {
				e.Value = int(int32(number.Uint32(m[44:])))
			}
			s.mu.Lock()
			s.got = append(s.got, e)
			s.mu.Unlock()
		}
	}()
	return s
}

// TestEvents compares the steps of some programs' packets with the files testdata/*.events. The
// flag -update rewrites these files. TestAgainstBMv2 checks that they are right.
func TestEvents(t *testing.T) {
	for _, name := range []string{"copies", "recirculate"} {
		told := &events{}
		prog, err := bmv2json.ReadFile("testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		p, err := interp.New(prog, interp.Options{Events: told})
		if err != nil {
			t.Fatal(err)
		}
		f, err := stf.Parse(name, read(t, "testdata/"+name+".stf"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stf.Run(f, stf.Interp(p)); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, e := range told.all {
			fmt.Fprintf(&text, "%016x %d %d: %d %d %d\n", e.Packet.Signature, e.Packet.ID,
				e.Packet.Copy, e.Kind, e.ID, e.Value)
		}
		file := "testdata/" + name + ".events"
		if *update {
			if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := string(read(t, file)); text.String() != want {
			t.Errorf("%s: the steps are not those of %s; run with -update and look", name, file)
		}
	}
}
