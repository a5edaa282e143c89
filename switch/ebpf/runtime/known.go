package runtime

import (
	"math/big"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/known"
)

// The times at which programs are recompiled for their tables' content (compile/known). A changed
// table is looked up in its map until it has not changed for a while. This time doubles with each
// change, so a table that changes often nearly always uses its map. Programs are compiled one after
// the other, with a pause between them.
const (
	knownQuiet   = time.Second
	knownLongest = 2 * time.Minute
	knownPause   = 2 * time.Second
)

// knowing is the data about a table that controls recompilation.
type knowing struct {
	version uint32    // the table's version in the state
	changed time.Time // when the table last changed
	// how long the table must be unchanged before a program is compiled for its content
	quiet time.Duration
	used  bool // the running program is compiled for this version of the table
	unfit bool // the content would need too many comparisons
}

// touch makes packets use the table's map from now on. Callers call it before they change the map.
func (t *table) touch() {
	if !t.Knowable() {
		return
	}
	t.know.version++
	t.p.State.Store(t.Version, uint64(t.know.version))
	t.know.changed = time.Now()
	switch {
	case t.know.quiet == 0:
		t.know.quiet = knownQuiet
	case t.know.used:
		t.know.quiet = min(2*t.know.quiet, knownLongest)
	}
	t.know.used, t.know.unfit = false, false
}

// settled reports whether the table has been unchanged for long enough. If now is set, it returns
// true.
func (t *table) settled(now bool) bool { return now || time.Since(t.know.changed) >= t.know.quiet }

// held returns the table's content. It returns false if the content would need too many
// comparisons.
func (t *table) held() (known.Table, bool) {
	width := t.Source.Keys[0].Width
	if len(t.byMatch) > known.MostRanges {
		return known.Table{}, false
	}
	var prefixes []known.Prefix
	entries := map[uint64]known.Entry{}
	for _, e := range t.byMatch {
		bits := width
		if t.Source.Keys[0].Kind == bmv2json.MatchLPM {
			bits = e.Match[0].PrefixLen
		}
		value := new(big.Int).SetBytes(e.Match[0].Value).Uint64()
		prefixes = append(prefixes, known.Prefix{Value: value, Bits: bits, Word: e.word})
		entries[e.word] = known.Entry{Params: e.Action.Params}
	}
	ranges := known.RangesOf(prefixes, width)
	return known.Table{Version: t.know.version, Ranges: ranges, Entries: entries}, ranges != nil
}

// Specialised has a pipeline's programs after they were recompiled for the tables' content.
type Specialised struct {
	TC, XDP *ebpf.Program
	Striped bool                // the programs support stripes (SetStripes)
	known   map[int]known.Table // indexed by Table.Index
	paths   bool                // the programs are compiled path by path
}

// Close releases the programs.
func (s *Specialised) Close() {
	for _, prog := range []*ebpf.Program{s.TC, s.XDP} {
		if prog != nil {
			prog.Close()
		}
	}
}

// knowable returns the contents of tables for which programs can be compiled. It returns nil if the
// running programs already use all these contents. If now is set, it does not wait until tables
// have stopped changing.
func (p *Pipeline) knowable(now bool) map[int]known.Table {
	leave, err := p.enter()
	if err != nil {
		return nil
	}
	defer leave()
	if p.refused || !now && time.Since(p.specialised) < knownPause {
		return nil
	}
	// Usually nothing has changed, and this check must not delay the control plane.
	if !slices.ContainsFunc(p.control, func(t *table) bool {
		return !t.know.used && !t.know.unfit && len(t.byMatch) > 0 &&
			len(t.byMatch) <= known.MostRanges && t.Knowable() && t.settled(now)
	}) {
		return nil
	}
	contents, news := map[int]known.Table{}, false
	for i, t := range p.control {
		if !t.Knowable() || !t.settled(now) {
			continue
		}
		k, ok := t.held()
		if ok {
			contents[i] = k
			news = news || !t.know.used && len(t.byMatch) > 0
		}
		t.know.unfit = !ok
	}
	if !news {
		return nil
	}
	return contents
}

// Specialise recompiles the programs if the running programs are not compiled for their tables'
// present content. It returns nil if they are, or if the pipeline was closed meanwhile. Control
// plane calls can run at the same time. The new programs run once they are attached and
// [Pipeline.Replace] was called. If now is set, Specialise does not wait until tables have stopped
// changing, and it finds a program's paths even if no table has changed.
func (p *Pipeline) Specialise(now bool) (*Specialised, error) {
	contents := p.knowable(now)
	p.mu.Lock()
	paths, refused := !p.pathless, p.refused
	if contents == nil && now && paths && !refused && !p.closed && !p.Maps.Paths {
		contents = map[int]known.Table{}
	}
	p.mu.Unlock()
	if contents == nil {
		return nil, nil
	}
	if now {
		return p.makeAnew(contents, paths)
	}
	var s *Specialised
	var err error
	inBackground(func() { s, err = p.makeAnew(contents, paths) })
	return s, err
}

// inBackground runs f on a new thread with low priority. Finding a program's paths and verifying
// the program in the kernel can take a large part of a second.
func inBackground(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The goroutine never unlocks the thread, so the thread ends with it.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 10)
		f()
	}()
	<-done
}

// makeAnew compiles and loads programs for the tables' content, path by path if possible. It
// returns nil if the pipeline was closed meanwhile. The kernel then refuses the programs because
// their maps are closed, which is not a fault of the programs.
func (p *Pipeline) makeAnew(contents map[int]known.Table, paths bool) (*Specialised, error) {
	s, err := p.loadKnown(contents, paths)
	if err == nil {
		return s, nil
	}
	p.mu.Lock()
	closed := p.closed
	switch {
	case closed:
	case paths:
		// the program has too many paths for the kernel's verifier, or for the reach of a jump
		p.pathless = true
	default:
		p.refused = true // The kernel refused this program, so do not try it again.
	}
	p.mu.Unlock()
	switch {
	case closed:
		return nil, nil
	case paths:
		return p.makeAnew(contents, false)
	}
	return nil, err
}

// loadKnown loads programs into the kernel that are compiled for the tables' content and, if paths
// is set, path by path.
func (p *Pipeline) loadKnown(contents map[int]known.Table, paths bool) (s *Specialised, err error) {
	s = &Specialised{known: contents, paths: paths}
	maps := p.Maps
	maps.Known, maps.Paths = contents, paths
	if s.TC, s.Striped, err = p.loadWith(emit.TC, maps); err == nil && p.XDP != nil {
		var striped bool
		s.XDP, striped, err = p.loadWith(emit.XDP, maps)
		s.Striped = s.Striped && striped
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Forget makes [Pipeline.Specialise] compile the programs again even if no table has changed. It is
// for tests.
func (p *Pipeline) Forget() {
	leave, err := p.enter()
	if err != nil {
		return
	}
	defer leave()
	for _, t := range p.control {
		t.know.used = false
	}
	p.Maps.Paths = false
}

// Replace makes the new programs the pipeline's own programs, and returns the old programs.
// Programs without support for stripes may run only after SetStripes(false).
func (p *Pipeline) Replace(s *Specialised) *Specialised {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := &Specialised{TC: p.TC, XDP: p.XDP, Striped: p.striped}
	p.TC, p.XDP, p.Maps.Known, p.Maps.Paths = s.TC, s.XDP, s.known, s.paths
	p.striped = s.Striped
	p.specialised = time.Now()
	for i, t := range p.control {
		k, ok := s.known[i]
		t.know.used = ok && k.Version == t.know.version
	}
	return old
}
