package agent

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// namedPorts is a fake Switch whose tables name a set of ports.
type namedPorts struct {
	noSwitch
	named map[uint32]bool
	err   error
}

func (s *namedPorts) NamedPorts() (map[uint32]bool, error) { return s.named, s.err }

// TestFreePort checks which port an attachment gets. The switch's tables must not name the port.
// Each port must be reused as late as possible. A restart of the agent must not change this.
func TestFreePort(t *testing.T) {
	sw, dir := &namedPorts{}, t.TempDir()+"/attachments"
	var a *Agent
	start := func() {
		t.Helper()
		records := map[string]*agentapi.Record{}
		if a != nil {
			records = a.records
		}
		var err error
		if a, err = New(Options{Dir: dir, Switch: sw, FirstPort: 64, LastPort: 68}); err != nil {
			t.Fatal(err)
		}
		a.records = records
	}
	start()
	expect := func(want uint32) {
		t.Helper()
		p, err := a.freePort()
		if err != nil || p != want {
			t.Fatalf("port %d (%v), not %d", p, err, want)
		}
	}
	refused := func(text string) {
		t.Helper()
		p, err := a.freePort()
		var e *agentapi.Error
		if !errors.As(err, &e) || e.Code != agentapi.CodeTryAgain || !strings.Contains(err.Error(), text) {
			t.Fatalf("port %d, %v; want %q", p, err, text)
		}
	}
	expect(64)
	expect(65) // port 64 is free again, but is not reused yet
	start()
	expect(66)
	a.records["a"] = &agentapi.Record{Port: 67}
	sw.named = map[uint32]bool{64: true, 68: true, 3: true}
	expect(65)
	expect(66)
	a.records["b"], a.records["c"] = &agentapi.Record{Port: 65}, &agentapi.Record{Port: 66}
	refused("2 of 5 had pods that are deleted")
	delete(sw.named, 68) // the controller also removes such entries
	expect(68)
	a.records["d"], a.records["e"], sw.named = &agentapi.Record{Port: 64}, &agentapi.Record{Port: 68}, nil
	refused("all 5 ports of the node's switch are taken")

	a.records = map[string]*agentapi.Record{}
	if err := os.WriteFile(a.store.lastPortFile(), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(64) // the agent replaces an unreadable file
	start()
	expect(65)
	sw.err = errors.New("the switch is closed")
	if p, err := a.freePort(); !errors.Is(err, sw.err) {
		t.Errorf("port %d, %v", p, err)
	}
}
