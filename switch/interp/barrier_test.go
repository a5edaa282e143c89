package interp

import (
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// TestChangesAreFinal keeps a packet inside the program. No change may return before this packet
// has left the program. A change that P4Runtime acknowledges therefore applies to every later
// packet.
func TestChangesAreFinal(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	p := load(t, "stateful", Options{Log: func(s string) {
		if s == "done" { // the second of the program's two messages
			entered <- true
			<-leave
		}
	}})
	match := []target.FieldMatch{{Value: []byte{0, 1}}}
	entry := &target.TableEntry{Match: match, Action: act("I.measured", []byte{0, 7})}
	for _, change := range []struct {
		name string
		do   func() error
	}{
		{"insert", func() error { return p.InsertEntry("I.metered", entry) }},
		{"modify", func() error { return p.ModifyEntry("I.metered", entry) }},
		{"delete", func() error { return p.DeleteEntry("I.metered", entry) }},
		{"default", func() error {
			return p.SetDefault("I.metered", &target.TableEntry{Action: act("I.measured",
				[]byte{0, 8})})
		}},
		{"group", func() error { return p.SetMulticastGroup(1, []target.Replica{{Port: 1}}) }},
		{"session", func() error {
			return p.SetCloneSession(1,
				&target.CloneSession{Replicas: []target.Replica{{Port: 1}}})
		}},
		{"register", func() error { return p.WriteRegister("I.narrow", 0, []byte{0, 1}) }},
		{"registers", func() error { return p.FillRegister("I.narrow", []byte{0, 1}) }},
		{"counter", func() error {
			return p.WriteCounter("I.packets", 0,
				target.CounterData{Packets: 1})
		}},
		{"meter", func() error { return p.WriteMeter("I.limit", 0, &target.MeterConfig{}) }},
	} {
		t.Run(change.name, func(t *testing.T) {
			through, made := make(chan bool, 1), make(chan error, 1)
			go func() {
				p.Process(time.Second, 0, frame(t,
					"09 0000 0000000000000000 00000000000000000000000000000000"))
				through <- true
			}()
			<-entered
			go func() {
				err := change.do()
				if err == nil {
					err = p.Barrier()
				}
				made <- err
			}()
			select {
			case err := <-made:
				t.Errorf("it was made (%v) with a packet in the program", err)
				leave <- true
				<-through
			case <-time.After(5 * time.Millisecond):
				leave <- true
				<-through
				must(t, <-made)
			}
		})
	}
}
