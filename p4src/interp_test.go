package p4src

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// TestScenarios runs the scenarios on the interpreter, in this process.
func TestScenarios(t *testing.T) {
	eachScenario(t, func(t *testing.T, file string) {
		s := &scenario{open: func(t *testing.T, profile int) device { return newInterpreter(t, profile, nil) }}
		s.run(t, file)
	})
}

// TestScenariosPSA runs the same scenarios on the PSA program. The transcripts must be the same.
func TestScenariosPSA(t *testing.T) {
	eachScenario(t, func(t *testing.T, file string) {
		s := &scenario{open: func(t *testing.T, profile int) device {
			name := fmt.Sprintf("compiled/netcraq_psa-%d", profile)
			text, err := bmv2json.Text(name + ".json.gz")
			check(t, err)
			p4info, err := os.ReadFile(name + ".p4info.txtpb")
			check(t, err)
			return interpreterOf(t, text, p4info)
		}}
		s.run(t, file)
	})
}

// TestScenariosCoverEveryBranch runs the scenarios of the 128-bit profile on a copy of the program
// that counts both outcomes of each condition. The test fails if no packet causes an outcome,
// unless `unreachable` lists the outcome.
func TestScenariosCoverEveryBranch(t *testing.T) {
	var counted *interpreter
	var branches []string
	taken := map[string]uint64{}
	packets := 0
	collect := func() {
		if counted == nil {
			return
		}
		for i, branch := range branches {
			c, err := counted.pipeline.ReadCounter(coverageCounter, i)
			check(t, err)
			taken[branch] += c.Packets
		}
		counted = nil
	}
	eachScenario(t, func(t *testing.T, file string) {
		s := &scenario{open: func(t *testing.T, profile int) device {
			collect()
			if profile != 128 {
				return newInterpreter(t, profile, nil)
			}
			counted = newInterpreter(t, profile, func(text []byte) []byte {
				var out []byte
				out, branches = instrument(t, text)
				return out
			})
			return counted
		}}
		s.run(t, file)
		collect()
		packets += s.sent
	})
	if packets < 200 {
		t.Errorf("the scenarios send %d packets: fewer than 200", packets)
	}
	var missing []string
	for _, branch := range branches {
		_, excused := unreachable[branch]
		switch {
		case taken[branch] == 0 && !excused:
			missing = append(missing, branch)
		case taken[branch] != 0 && excused:
			t.Errorf("a packet went a way that is said to be unreachable: %s", branch)
		}
	}
	for branch := range unreachable {
		if !slices.Contains(branches, branch) {
			t.Errorf("unreachable names a branch that the program does not have: %s", branch)
		}
	}
	sort.Strings(missing)
	if len(missing) > 0 {
		t.Errorf("%d of %d branches are not taken by any packet of the scenarios:\n%s", len(missing), len(branches), strings.Join(missing, "\n"))
	}
	t.Logf("%d packets, %d branches, %d taken", packets, len(branches), len(branches)-len(missing)-len(unreachable))
}

// unreachable lists the outcomes of conditions that no packet can cause, with the reason.
var unreachable = map[string]string{}

func eachScenario(t *testing.T, f func(t *testing.T, file string)) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { f(t, file) })
	}
}

// interpreter is a switch that the interpreter runs in this process.
type interpreter struct {
	info     *p4rt.Info
	program  *bmv2json.Program
	pipeline *interp.Pipeline
	now      time.Duration
}

func newInterpreter(t *testing.T, profile int, change func([]byte) []byte) *interpreter {
	t.Helper()
	text, p4info, err := Compiled(profile)
	check(t, err)
	if change != nil {
		text = change(text)
	}
	return interpreterOf(t, text, p4info)
}

func interpreterOf(t *testing.T, text, p4info []byte) *interpreter {
	t.Helper()
	var message configv1.P4Info
	check(t, prototext.Unmarshal(p4info, &message))
	info, err := p4rt.NewInfo(&message)
	check(t, err)
	program, err := bmv2json.Parse(text)
	check(t, err)
	pipeline, err := interp.New(program, interp.Options{})
	check(t, err)
	return &interpreter{info: info, program: program, pipeline: pipeline, now: time.Second}
}

// entry converts a P4Runtime entry to the engine's format, which has names instead of ids, and
// values of full width.
func (d *interpreter) entry(e p4rt.Entry) (string, *target.TableEntry, error) {
	encode := (*p4rt.Info).Encode
	if e.Action == "" {
		encode = encodeMatch
	}
	m, err := encode(d.info, e)
	if err != nil {
		return "", nil, err
	}
	var table *configv1.Table
	for _, t := range d.info.P4Info.Tables {
		if t.Preamble.Id == m.TableId {
			table = t
		}
	}
	out := &target.TableEntry{}
	for i, f := range m.Match {
		width := int(table.MatchFields[i].Bitwidth)
		if x := f.GetExact(); x != nil {
			out.Match = append(out.Match, target.FieldMatch{Value: pad(x.Value, width)})
		} else if x := f.GetLpm(); x != nil {
			out.Match = append(out.Match, target.FieldMatch{Value: pad(x.Value, width), PrefixLen: int(x.PrefixLen)})
		}
	}
	if a := m.GetAction().GetAction(); a != nil {
		for _, action := range d.info.P4Info.Actions {
			if action.Preamble.Id == a.ActionId {
				out.Action = &target.ActionCall{Action: action.Preamble.Name}
				for i, p := range a.Params {
					out.Action.Params = append(out.Action.Params, pad(p.Value, int(action.Params[i].Bitwidth)))
				}
			}
		}
	}
	return table.Preamble.Name, out, nil
}

// encodeMatch encodes only the match of an entry. It is used to delete the entry.
func encodeMatch(info *p4rt.Info, e p4rt.Entry) (*v1.TableEntry, error) {
	tables, actions := info.P4Info.Tables, info.P4Info.Actions
	t := slices.IndexFunc(tables, func(t *configv1.Table) bool { return t.Preamble.Alias == e.Table })
	if t < 0 {
		return nil, fmt.Errorf("no table %s", e.Table)
	}
	id := tables[t].ActionRefs[0].Id
	a := actions[slices.IndexFunc(actions, func(a *configv1.Action) bool { return a.Preamble.Id == id })]
	e.Action, e.Params = a.Preamble.Alias, p4rt.Params{}
	for _, p := range a.Params {
		e.Params[p.Name] = uint64(0)
	}
	entry, err := info.Encode(e)
	if err != nil {
		return nil, err
	}
	entry.Action = nil
	return entry, nil
}

func pad(v []byte, width int) []byte {
	n := (width + 7) / 8
	return append(make([]byte, n-len(v)), v...)
}

func (d *interpreter) set(e p4rt.Entry) error {
	table, entry, err := d.entry(e)
	if err != nil {
		return err
	}
	if e.Default {
		return d.pipeline.SetDefault(table, entry)
	}
	if d.pipeline.InsertEntry(table, entry) == nil {
		return nil
	}
	return d.pipeline.ModifyEntry(table, entry)
}

func (d *interpreter) remove(e p4rt.Entry) error {
	e.Action, e.Params = "", nil
	table, entry, err := d.entry(e)
	if err != nil {
		return err
	}
	return d.pipeline.DeleteEntry(table, entry)
}

func (d *interpreter) group(g p4rt.Group) error {
	var replicas []target.Replica
	for _, r := range g.Replicas {
		replicas = append(replicas, target.Replica{Port: r.Port, Instance: uint16(r.Instance)})
	}
	return d.pipeline.SetMulticastGroup(g.ID, replicas)
}

// hostRate is the name of the meter for packets from hosts.
const hostRate = "NetcraqIngress.pipeline.admission.host_rate"

// packetsAtOnce configures a meter that lets the given number of packets pass and never refills. So
// transcripts do not depend on the machine's speed.
func packetsAtOnce(packets int64) *target.MeterConfig {
	r := target.MeterRate{Burst: uint64(packets)}
	return &target.MeterConfig{Committed: r, Peak: r}
}

func (d *interpreter) rate(port uint32, packets int64) error {
	return d.pipeline.WriteMeter(hostRate, int(port), packetsAtOnce(packets))
}

func (d *interpreter) events() ([]uint64, error) {
	var out []uint64
	for i := range 64 {
		c, err := d.pipeline.ReadCounter("NetcraqIngress.pipeline.events", i)
		if err != nil {
			return nil, err
		}
		out = append(out, c.Packets)
	}
	return out, nil
}

func (d *interpreter) send(port uint32, frame []byte) ([]output, error) {
	d.now += time.Millisecond
	var out []output
	for _, o := range d.pipeline.Process(d.now, port, frame) {
		out = append(out, output{o.Port, append([]byte{}, o.Frame...)})
	}
	return out, nil
}

const coverageCounter = "coverage"

// instrument returns the program with a counter at both outcomes of every condition. It also
// returns the meaning of each cell of the counter, as "condition in source: outcome".
func instrument(t *testing.T, text []byte) ([]byte, []string) {
	t.Helper()
	var program map[string]any
	check(t, json.Unmarshal(text, &program))
	var branches []string
	actions := program["actions"].([]any)
	for _, p := range program["pipelines"].([]any) {
		pipeline := p.(map[string]any)
		tables := pipeline["tables"].([]any)
		seen := map[string]int{}
		for _, c := range pipeline["conditionals"].([]any) {
			conditional := c.(map[string]any)
			source, _ := conditional["source_info"].(map[string]any)
			text := fmt.Sprintf("%v: %v", source["filename"], source["source_fragment"])
			seen[text]++
			if seen[text] > 1 {
				text += fmt.Sprintf(" (%d)", seen[text])
			}
			for _, way := range []string{"true", "false"} {
				cell, id := len(branches), 100000+len(branches)
				name := fmt.Sprintf("coverage_%d", cell)
				branches = append(branches, text+": "+way)
				actions = append(actions, map[string]any{"name": name, "id": id, "runtime_data": []any{}, "primitives": []any{map[string]any{"op": "count",
					"parameters": []any{map[string]any{"type": "counter_array", "value": coverageCounter},
						map[string]any{"type": "hexstr", "value": fmt.Sprintf("0x%x", cell)}}}}})
				next := conditional[way+"_next"]
				tables = append(tables, map[string]any{"name": "tbl_" + name, "id": id, "key": []any{}, "match_type": "exact", "type": "simple", "max_size": 1,
					"with_counters": false, "support_timeout": false, "direct_meters": nil, "action_ids": []any{id}, "actions": []any{name},
					"base_default_next": next, "next_tables": map[string]any{name: next},
					"default_entry": map[string]any{"action_id": id, "action_const": true, "action_data": []any{}, "action_entry_const": true}})
				conditional[way+"_next"] = "tbl_" + name
			}
		}
		pipeline["tables"] = tables
	}
	program["actions"] = actions
	program["counter_arrays"] = append(program["counter_arrays"].([]any),
		map[string]any{"name": coverageCounter, "id": 100000, "is_direct": false, "size": len(branches)})
	out, err := json.Marshal(program)
	check(t, err)
	return out, branches
}
