package runtime

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

// Pipeline is one committed P4 program. It has the programs in the kernel, and the control plane's
// side of the P4 program.
//
// The control plane keeps its own list of entries, groups and defaults, checks every call against
// this list, and writes the result to the kernel.
type Pipeline struct {
	*memory.Plan
	emit.Settings
	State   *State
	PHV     *ebpf.Map
	lookups map[int]*ebpf.Map
	Number  uint64        // number that is unique among this switch's pipelines
	TC      *ebpf.Program // the program at tc
	XDP     *ebpf.Program // the program at XDP; nil if no port may use XDP
	slots   *ebpf.Map     // slots for frames that XDP passes to tc, and for reinjected packets
	Maps    emit.Maps
	cells   *ebpf.Program // the program that reads and writes registers under the packets' lock

	mu       sync.Mutex
	closed   bool
	control  []*table // indexed by Table.Index
	groups   map[uint32]*group
	sessions map[uint32]*session
	// value sets by name, as the control plane sees them
	sets           map[string][][]target.FieldMatch
	replicas       *extents
	actionProfiles []*actionProfile  // indexed by ActionProfile.Index
	ages           map[*entry]*table // entries that have an idle timeout

	specialised time.Time // When the programs were last compiled for their tables' content.
	refused     bool      // the kernel has refused a program compiled for its tables' content
	pathless    bool      // the kernel has refused a program compiled path by path
	striped     bool      // the programs support stripes (SetStripes)
	// how often packets had found the global lock taken at the last StripeIfMeeting
	waits uint64
}

// NewPipeline loads a program into the kernel. The program does not process packets yet.
func NewPipeline(prog *bmv2json.Program, s *Switch) (p *Pipeline, err error) {
	pl, err := memory.NewPlan(prog)
	if err != nil {
		return nil, err
	}
	p = &Pipeline{Plan: pl, Settings: s.Settings, lookups: map[int]*ebpf.Map{},
		groups: map[uint32]*group{}, sessions: map[uint32]*session{}, ages: map[*entry]*table{},
		sets: map[string][][]target.FieldMatch{}, replicas: newExtents(memory.MaxReplicas)}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if p.State, err = NewState(pl.StateBytes + compile.CellsMax); err != nil {
		return p, err
	}
	if p.PHV, err = newMapIn(ebpf.MapSpec{Name: "phv", Type: ebpf.PerCPUArray, KeySize: 4,
		ValueSize: uint32(pl.PHVBytes), MaxEntries: 1}); err != nil {
		return p, err
	}
	f := emit.Maps{PHV: p.PHV.FD(), State: p.State.FD(), Ports: s.PortMap.FD(),
		PacketIn: s.PacketIn.m.FD(), PacketOut: s.PacketOuts.FD(), Buffer: s.buffer.FD(),
		Lookups: map[int]int{}}
	for i, t := range pl.Tables {
		size := uint32(max(t.Source.MaxSize, len(t.Source.ConstEntries), 1))
		spec := ebpf.MapSpec{Name: "hash", Type: ebpf.Hash, KeySize: uint32(t.KeyBytes),
			ValueSize: 8, MaxEntries: size}
		switch t.Kind {
		case memory.LookupHash:
		case memory.LookupTrie:
			spec.Name, spec.Type, spec.Flags = "trie", ebpf.LPMTrie, unix.BPF_F_NO_PREALLOC
		default:
			continue
		}
		m, err := newMapIn(spec)
		if err != nil {
			return p, fmt.Errorf("table %s: %w", t.Source.Name, err)
		}
		p.lookups[i], f.Lookups[i] = m, m.FD()
	}
	if pl.Digest != 0 {
		f.Digests = s.digests.m.FD()
	}
	if len(pl.Messages) > 0 {
		f.Messages = s.messages.m.FD()
	}
	if s.tap != nil {
		f.Tap = s.tap.m.FD()
	}
	p.Number = s.pipelines.Add(1)
	f.Number = p.Number
	if s.atXDP || pl.Requests.Reinjects() {
		stride := pl.SlotStride()
		if p.slots, err = newMapIn(ebpf.MapSpec{Name: "xdp_to_tc", Type: ebpf.Array, KeySize: 4,
			ValueSize: uint32(stride * memory.ResumeSlots), MaxEntries: 1}); err != nil {
			return p, err
		}
		f.Resume, f.Magic, f.Number = p.slots.FD(), s.magic, p.Number
	}
	p.Maps = f
	p.FillTables(p.State.Mem)
	if p.TC, _, err = p.loadWith(emit.TC, f); err != nil {
		return p, err
	}
	if s.atXDP {
		if p.XDP, _, err = p.loadWith(emit.XDP, f); err != nil {
			return p, err
		}
	}
	cells, err := compile.CellsProgram(pl, f)
	if err != nil {
		return p, err
	}
	if p.cells, err = LoadProgram("cells", emit.TC, cells); err != nil {
		return p, err
	}
	for _, a := range prog.ActionProfiles() {
		p.actionProfiles = append(p.actionProfiles, newActionProfile(a))
	}
	p.pathless = pl.HasGroups() // programs with groups cannot be compiled path by path
	for _, t := range pl.Tables {
		p.control = append(p.control, newTable(p, t))
	}
	for _, t := range p.control {
		if err := t.start(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// loadWith translates the program for a hook and loads it into the kernel. striped reports whether
// the program supports stripes ([compile.Translate]).
func (p *Pipeline) loadWith(h emit.Hook, maps emit.Maps) (prog *ebpf.Program, striped bool,
	err error) {
	insns, striped, err := compile.Translate(p.Plan, h, maps, p.Settings)
	if err != nil {
		return nil, false, err
	}
	prog, err = LoadProgram("netcraq", h, insns) // the name must be attach.SwitchProgram
	return prog, striped, err
}

// LoadProgram loads instructions into the kernel.
func LoadProgram(name string, h emit.Hook, insns asm.Instructions) (*ebpf.Program, error) {
	spec := &ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, Instructions: insns, License: "GPL"}
	if h == emit.XDP {
		// The program accepts frames that are longer than a page.
		spec.Type, spec.Flags = ebpf.XDP, unix.BPF_F_XDP_HAS_FRAGS
	}
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		var v *ebpf.VerifierError
		if errors.As(err, &v) && len(v.Log) > 0 {
			// If the verifier cannot follow a program, this engine cannot run the program.
			return nil,
				fmt.Errorf("the kernel's verifier refuses the program %q for %s "+
					"(%d instructions): %w: %w", name, h, len(insns), err, target.ErrUnsupported)
		}
		return nil, fmt.Errorf("loading the program %q for %s (%d instructions): %w", name, h,
			len(insns), err)
	}
	return prog, nil
}

// Close releases the programs and maps. Packets in flight keep the programs and maps that they use.
func (p *Pipeline) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for _, m := range p.lookups {
		m.Close()
	}
	for _, prog := range []*ebpf.Program{p.TC, p.XDP, p.cells} {
		if prog != nil {
			prog.Close()
		}
	}
	for _, m := range []*ebpf.Map{p.PHV, p.slots} {
		if m != nil {
			m.Close()
		}
	}
	if p.State != nil {
		p.State.Close()
	}
}

// Program implements [target.Pipeline].
func (p *Pipeline) Program() *bmv2json.Program { return p.Prog }

// enter takes the control plane's lock for one call. The caller must call leave at the end.
func (p *Pipeline) enter() (leave func(), err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, fmt.Errorf("another program has been committed since: %w", target.ErrNoPipeline)
	}
	return p.mu.Unlock, nil
}
