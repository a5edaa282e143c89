package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/p4src"
	"github.com/netcraq/netcraq/test/system/lab"
)

// envPrograms selects the kinds of switches for TestPrograms, separated by commas. The default is
// interp and auto. If it is set, the test also uses another build of the P4 program.
const envPrograms = "NETCRAQ_PROGRAMS_ENGINES"

// lastSlot is a register in the simulated later program. Packets of placed keys write it.
const (
	lastSlot     = "NetcraqIngress.pipeline.chain.last_slot"
	lastSlotCell = 7
)

// otherProgram writes the files of a program that a later release may have. If later is false, the
// program is another build of the present program with the same P4Info. If later is true, it has
// one more register, which packets write.
func otherProgram(t *testing.T, later bool) (jsonFile, infoFile string) {
	t.Helper()
	config, info, err := p4src.Compiled(128)
	if err != nil {
		t.Fatal(err)
	}
	var program map[string]any
	if err := json.Unmarshal(config, &program); err != nil {
		t.Fatal(err)
	}
	if later {
		registers := program["register_arrays"].([]any)
		program["register_arrays"] = append(registers,
			map[string]any{"name": lastSlot, "id": len(registers), "size": 256, "bitwidth": 32})
		written := false
		for _, a := range program["actions"].([]any) {
			action := a.(map[string]any)
			if strings.HasSuffix(action["name"].(string), ".set_slot") {
				written = true
				action["primitives"] = append(action["primitives"].([]any), map[string]any{"op": "register_write",
					"parameters": []any{
						map[string]any{"type": "register_array", "value": lastSlot},
						map[string]any{"type": "hexstr", "value": fmt.Sprintf("0x%x", lastSlotCell)},
						map[string]any{"type": "hexstr", "value": "0x1"},
					}})
			}
		}
		if !written {
			t.Fatal("the program has no action set_slot")
		}
		info = fmt.Appendf(info, "registers { preamble { id: 376438785 name: %q alias: \"last_slot\" } "+
			"type_spec { bitstring { bit { bitwidth: 32 } } } size: 256 }\n", lastSlot)
	}
	// the JSON then has another order of keys, as another build has
	if config, err = json.Marshal(program); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	jsonFile, infoFile = filepath.Join(dir, "program.json"), filepath.Join(dir, "program.p4info.txtpb")
	for name, b := range map[string][]byte{jsonFile: config, infoFile: info} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return jsonFile, infoFile
}

// TestPrograms replaces the P4 program of a chain under load with another program, and then
// restores the first program. For each replacement, the test stops the controller, and starts it
// with the other program. The controller then takes one member after the other out of the chain,
// loads the program, and fills the member again. No value may be lost, the clients' history must be
// linearizable, and the chain may never lack more than one member. The test logs the longest wait
// of each step.
func TestPrograms(t *testing.T) {
	engines, long := os.Getenv(envPrograms), true
	if engines == "" {
		engines, long = "interp,auto", false
	}
	for engine := range strings.SplitSeq(engines, ",") {
		t.Run(engine, func(t *testing.T) { programs(t, engine, long) })
	}
}

func programs(t *testing.T, engine string, long bool) {
	if !lab.InNamespace(t) {
		return
	}
	l := upgradeRing()
	nw := lab.NewNetwork(t, engine, l)
	using := func(later bool) *topology.Topology {
		config, info := otherProgram(t, later)
		return nw.Changed(func(top topologytest.Object) {
			p := top["program"].(topologytest.Object)
			p["json"], p["p4info"] = config, info
		})
	}
	this := nw.Changed()
	c := nw.StartController("state.json")
	c.WaitReady()
	kept, err := c.API.AddKey(t.Context(), "main", admin.KeySpec{Name: "kept", Value: []byte("over all of it")})
	if err != nil {
		t.Fatal(err)
	}
	load := startLoad(t, nw, c, 4, 10*time.Minute)
	from := time.Now()
	var spans []span
	step := func(what string, top *topology.Topology, later bool) {
		t.Helper()
		begin := time.Now()
		c.Stop()
		next := nw.StartControllerWith("state.json", top)
		c.API, c.URL, c.Running, c.Stop = next.API, next.URL, next.Running, next.Stop
		load.moved()
		for i := 1; i <= l.N; i++ {
			c.WaitEvent("switch.program-replaced", fmt.Sprint("s", i))
		}
		c.WaitUntil(func() bool { return c.AllReady(l.N) }, what+": the chain to be whole")
		time.Sleep(200 * time.Millisecond)
		spans = append(spans, span{what, begin, time.Now()})
		for i := 1; i <= l.N; i++ {
			checkProgram(t, nw, i, top, later)
		}
		for line := range strings.Lines(c.History()) {
			if _, members, found := strings.Cut(line, "chain.installing main"); found {
				members, _, _ = strings.Cut(members, "(shadow")
				if n := 1 + strings.Count(members, "->"); n < l.N-1 {
					t.Errorf("%s: the chain has %d members: %s", what, n, line)
				}
			}
			if strings.Contains(line, "chain.lost") {
				t.Errorf("%s: %s", what, line)
			}
		}
		if r, err := nw.Hosts[0].Read(lab.ServiceAddr, kept.KeyID); err != nil || string(r.Value) != "over all of it" {
			t.Errorf("%s: h1 reads %v, %v", what, r, err)
		}
	}
	step("a later program, with another register", using(true), true)
	step("taken back", this, false)
	if long {
		step("another build of the same program", using(false), false)
		step("a later program again", using(true), true)
		step("taken back again", this, false)
	}
	load.end(from, time.Now(), 100)
	for _, s := range spans {
		t.Logf("%-42s longest without a write %5.0f ms, without a read %5.0f ms; took %v", s.what,
			lab.LongestGap(lab.WritesDone(load.history), s.from, s.to),
			lab.LongestGap(lab.ReadsDone(load.history), s.from, s.to), s.to.Sub(s.from).Round(100*time.Millisecond))
	}
}

// checkProgram checks that a switch runs a program. It checks the program's cookie, and the
// register that packets write.
func checkProgram(t *testing.T, nw *lab.Network, i int, top *topology.Topology, later bool) {
	t.Helper()
	pl, err := p4rt.LoadPipeline(top.Program.P4Info, top.Program.JSON)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p4rt.New(p4rt.Options{Name: "looks", Target: nw.Proxies[i].Addr, DeviceID: uint64(i),
		ElectionID: p4rt.ElectionID{Low: 1}, Info: pl.Info}, p4rt.Handler{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	poll.Until(t, 20*time.Second, "this is a backup client", func() bool { return c.State().Phase == p4rt.Backup })
	if cookie, err := c.Cookie(ctx); err != nil || cookie != pl.Cookie {
		t.Errorf("s%d runs the program %x, %v; want %x", i, cookie, err, pl.Cookie)
	}
	if !later {
		return
	}
	if !slices.Contains(pl.Info.Registers(), "last_slot") {
		t.Fatalf("the later program's registers are %v", pl.Info.Registers())
	}
	poll.Until(t, 10*time.Second, "packets write the new register", func() bool {
		cells, err := c.ReadRegisterCells(ctx, "last_slot", []int{lastSlotCell})
		return err == nil && len(cells) == 1 && slices.ContainsFunc(cells[0], func(b byte) bool { return b != 0 })
	})
}
