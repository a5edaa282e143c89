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

// The times at which a program is recompiled for its tables' content (compile/known). A changed
// table stays a map until it has not changed for a while. That time doubles with each change, so a
// table that changes often is nearly always a map. Programs are compiled one after the other, with
// a pause.
const (
	knownQuiet   = time.Second
	knownLongest = 2 * time.Minute
	knownPause   = 2 * time.Second
)

// knowing is the control plane's data about a table for recompilation.
type knowing struct {
	version uint32        // the version in the state
	changed time.Time     // when the table last changed
	quiet   time.Duration // how long the table must be unchanged before it is compiled in
	used    bool          // the running program has comparisons for this version
	unfit   bool          // the content needs too many comparisons
}

// touch makes packets use the map from now on. It is called before the map is changed.
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

// settled reports whether the table has been unchanged for long enough; if now is set, it returns
// true.
func (t *table) settled(now bool) bool { return now || time.Since(t.know.changed) >= t.know.quiet }

// held returns the table's content; false if that needs too many comparisons.
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

// Specialised are a pipeline's programs, recompiled for its tables' content.
type Specialised struct {
	TC, XDP *ebpf.Program
	Striped bool                // they support stripes (SetStripes)
	known   map[int]known.Table // by Table.Index
	paths   bool                // they were compiled by their paths
}

// Close frees the programs.
func (s *Specialised) Close() {
	for _, prog := range []*ebpf.Program{s.TC, s.XDP} {
		if prog != nil {
			prog.Close()
		}
	}
}

// knowable returns the contents of tables for which a program can be compiled; nil if the running
// one already has all of them. With now, it does not wait until tables have stopped changing.
func (p *Pipeline) knowable(now bool) map[int]known.Table {
	leave, err := p.enter()
	if err != nil {
		return nil
	}
	defer leave()
	if p.refused || !now && time.Since(p.specialised) < knownPause {
		return nil
	}
	// Mostly nothing has changed, and finding that out must not delay the control plane.
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

// Specialise recompiles the programs if the running ones do not have their tables' present content;
// it returns nil if they do, or if the pipeline was closed meanwhile. Calls of the control plane
// can run at the same time. The programs run once they are attached and [Pipeline.Replace] was
// called. With now, it does not wait until tables have stopped changing, and finds a program's
// paths even if no table has changed.
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

// inBackground runs f on its own low-priority thread, because finding a program's paths and having
// the kernel verify them can take a large part of a second.
func inBackground(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 10)
		f()
	}()
	<-done
}

// makeAnew compiles and loads programs for the tables' content, by their paths if possible. It
// returns nil if the pipeline was closed meanwhile: the kernel refuses programs whose maps are
// closed, and such an end is not a fault of the program.
func (p *Pipeline) makeAnew(contents map[int]known.Table, paths bool) (*Specialised, error) {
	s, err := p.loadKnown(contents, paths)
	if err == nil {
		return s, nil
	}
	p.mu.Lock()
	closed := p.closed
	switch {
	case closed:
	case paths: // too many paths for the kernel's verifier, or for the reach of a jump
		p.pathless = true
	default:
		p.refused = true // do not try this program again
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

// loadKnown loads programs into the kernel that are compiled for the tables' content and by their
// paths.
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

// Forget makes [Pipeline.Specialise] compile the programs again even if no table has changed; it is
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

// Replace makes new programs the pipeline's own and returns the old ones. Programs that do not
// support stripes may run only after SetStripes(false).
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
