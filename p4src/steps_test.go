package p4src

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
)

// steps counts the work for one packet on a target that executes statement by statement, as BMv2
// does.
type steps struct {
	program                                 *bmv2json.Program
	conditions, tables, actions, primitives int
}

// Wanted implements [interp.Events].
func (*steps) Wanted() bool { return true }

// Event implements [interp.Events].
func (s *steps) Event(e interp.Event) {
	switch e.Kind {
	case interp.EventCondition:
		s.conditions++
	case interp.EventTableHit, interp.EventTableMiss:
		s.tables++
	case interp.EventActionExecute:
		s.actions++
		for _, a := range s.program.Actions {
			if a.ID == e.ID {
				s.primitives += len(a.Primitives)
			}
		}
	}
}

// TestSteps counts the work of BMv2 for each kind of packet that a chain processes. It counts
// evaluated conditions, applied tables (most of which p4c generates to hold statements), and
// executed actions and primitives. testdata/steps.txt has the counts, so a change of the program
// shows its cost there. The flag -rewrite writes the file again.
func TestSteps(t *testing.T) {
	const file = "testdata/steps.txt"
	stamped := map[string]string{"flags": "STAMPED", "epoch": "1", "version": "1.9", "session": "3", "request": "9"}
	reply := map[string]string{"from": "10.0.100.1:20035", "to": "10.0.1.1:4000", "status": "OK", "epoch": "1", "version": "1.9", "session": "3", "request": "9"}
	text := "# What a packet takes of a target that executes statement by statement; p4src/steps_test.go writes this.\n" +
		fmt.Sprintf("%-28s %10s %7s %8s %11s\n", "packet", "conditions", "tables", "actions", "primitives")
	for _, p := range []struct {
		name, role, port, op string
		fields               map[string]string
		dirty                bool
	}{
		{"clean READ", "HEAD", "1", "READ", nil, false},
		{"dirty READ at the head", "HEAD", "1", "READ", nil, true},
		{"dirty READ at the tail", "TAIL", "2", "READ", map[string]string{"flags": "DIRTY_FORWARDED"}, false},
		{"READ_REPLY that passes", "HEAD", "2", "READ_REPLY", map[string]string{"from": "10.0.100.1:20035", "to": "10.0.1.1:4000", "status": "OK", "epoch": "1", "version": "1.1"}, false},
		{"WRITE at the head", "HEAD", "1", "WRITE", map[string]string{"session": "3", "request": "9"}, false},
		{"WRITE at a replica", "REPLICA", "2", "WRITE", stamped, false},
		{"WRITE at the tail", "TAIL", "2", "WRITE", stamped, false},
		{"WRITE_REPLY that passes", "REPLICA", "2", "WRITE_REPLY", reply, false},
		{"ACK", "REPLICA", "2", "ACK", map[string]string{"epoch": "1", "version": "1.9", "session": "3", "request": "9"}, false},
	} {
		d := newInterpreter(t, 128, nil)
		count := &steps{program: d.program}
		var err error
		d.pipeline, err = interp.New(d.program, interp.Options{Events: count})
		check(t, err)
		s := benchmarkedChain(t, d, 128, p.role)
		fields := map[string]string{"key": "0x01000001"}
		if p.dirty {
			send(t, s, d, "WRITE", map[string]string{"key": "0x01000001", "session": "3", "request": "1"})
		}
		maps.Copy(fields, p.fields)
		frame, err := s.frame([]string{"send", p.port, p.op}, fields)
		check(t, err)
		*count = steps{program: d.program}
		out := d.pipeline.Process(time.Second, uint32(number(p.port)), frame)
		if len(out) > 1 || len(out) == 0 && p.op != "ACK" {
			t.Fatalf("%s: %d frames came out", p.name, len(out))
		}
		text += fmt.Sprintf("%-28s %10d %7d %8d %11d\n", p.name, count.conditions, count.tables, count.actions, count.primitives)
	}
	// the flag is defined by package datadriven, and also rewrites the scenarios
	if flag.Lookup("rewrite").Value.String() == "true" {
		check(t, os.WriteFile(file, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	check(t, err)
	if text != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Errorf("other counts than %s has (-rewrite writes them anew):\n%s", file, text)
	}
}
