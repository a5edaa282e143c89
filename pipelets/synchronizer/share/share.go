// Package share lets workers with the same source share one reader of that source.
//
// Workers whose pipelets name the same source at the same interval form a group ([Groups.Join]).
// The group reads the source in one session, and keeps the last batches in a ring. Each worker has
// its own position, which its destination stores. If that position is in the ring, the worker gets
// the next batch from the ring. A worker that has just started, or was too slow, has a position
// that is not in the ring. Such a worker reads the source itself until it reaches a record in the
// ring. Workers rely on only one guarantee of this package: it returns the records after a
// position, in order. Positions are compared for equality, never guessed.
//
// The flows of a namespace share batches, too. A batch is loaded into one DuckDB instance for
// several flows, and equal flows over equal batches run only once. Each DuckDB instance has its own
// process (package flowproc), and two namespaces never share an instance.
package share

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/flowproc"
)

const (
	// ringBytes is the maximum total size, in bytes, of the keys and values that a group keeps.
	// ringRecords is the maximum number of records.
	ringBytes   = 16 << 20
	ringRecords = 32 << 10
	// slow is the maximum processor time that a flow may use for a batch in the group's DuckDB.
	slow = 100 * time.Millisecond
	// calm is the number of consecutive batches after which a worker gives up its own DuckDB. Each
	// batch must have taken less than half of slow. Whenever the flow is slow again, the number
	// doubles, up to maxCalm.
	calm, maxCalm = 32, 4096
	// A group has one DuckDB for every manyFlows flows of a namespace. It has at most maxEngines,
	// and at most one for each processor.
	manyFlows, maxEngines = 8, 4
	// keptResults is the maximum number of results that are kept for a flow that several workers
	// share.
	keptResults = 16
)

// Groups has all groups of a process.
type Groups struct {
	mu  sync.Mutex
	all map[string]*group
}

// New makes an empty set of groups.
func New() *Groups { return &Groups{all: map[string]*group{}} }

// group is a set of workers that share one source.
type group struct {
	groups   *Groups
	key      string
	interval time.Duration
	open     func() (endpoint.Source, error)
	members  int // number of workers; guarded by groups.mu

	compiling sync.Mutex // held while a flow is compiled

	mu      sync.Mutex
	most    int // the largest batch, in records, that any worker accepts
	session *session
	engines map[string][]*flowproc.Engine // the engines of each namespace; also guarded by compiling
	flows   map[flowKey]*shared
}

// flowKey identifies a flow. Equal flows of two namespaces have different keys, because they must
// not share a process.
type flowKey struct{ namespace, query string }

// shared is a flow that several workers may share.
type shared struct {
	flow     *flowproc.Flow
	members  int
	alone    bool // the flow is slow, so each worker runs it in its own DuckDB
	patience int  // number of consecutive quick batches after which the workers share the flow again
	results  map[string]*result
	order    []string // names of the batches in results, the oldest first
}

// result is the result of a flow for a batch.
type result struct {
	done chan struct{}
	rows []endpoint.Row
	err  error
}

// Member is the membership of a worker in a group. It implements endpoint.Source. Only one
// goroutine may use it.
type Member struct {
	group     *group
	namespace string
	query     string
	// shares means that the worker is counted as a user of the group's flow.
	shares bool
	own    endpoint.Source // set while the worker reads the source itself
	alone  *flowproc.Flow  // the worker's own flow; set while the flow is slow, or if the flow has a state
	quick  int             // number of consecutive quick batches while the worker runs the flow in its own DuckDB
	batch  string          // the name of the last read batch
	part   bool            // the last batch is not a complete window
	gap    string          // describes what is missing in the source before the next record

	windows windows
	// Own counts the records that the worker has read from the source itself.
	Own uint64
}

// Join makes a worker of a namespace a member of the group with the given key. The function open
// opens the group's source. query is the flow of the worker, and state is the SELECT of the flow's
// state; both may be empty. most is the maximum number of records that the worker accepts at a
// time.
func (g *Groups) Join(ctx context.Context, key, namespace string, interval time.Duration, query, state string,
	most int, open func() (endpoint.Source, error)) (_ *Member, err error) {
	g.mu.Lock()
	gr := g.all[key]
	if gr == nil {
		gr = &group{groups: g, key: key, interval: interval, open: open,
			engines: map[string][]*flowproc.Engine{}, flows: map[flowKey]*shared{}}
		g.all[key] = gr
	}
	gr.members++
	g.mu.Unlock()
	gr.mu.Lock()
	gr.most = max(gr.most, most)
	gr.mu.Unlock()
	m := &Member{group: gr, namespace: namespace}
	if query == "" {
		return m, nil
	}
	if state != "" { // the flow's results depend on the worker's own table, so they cannot be shared
		if m.alone, err = flowproc.CompileStateful(ctx, query, state); err != nil {
			m.alone = nil
			m.Close()
			return nil, err
		}
		m.query = query
		return m, nil
	}
	if err := gr.compile(ctx, flowKey{namespace, query}); err != nil {
		m.Close()
		return nil, err
	}
	m.query, m.shares = query, true
	return m, nil
}

// compile counts a worker as a user of a flow, and compiles the flow for the first worker.
func (g *group) compile(ctx context.Context, key flowKey) (err error) {
	g.compiling.Lock()
	defer g.compiling.Unlock()
	g.mu.Lock()
	n := 0
	for other := range g.flows {
		if other.namespace == key.namespace {
			n++
		}
	}
	f := g.flows[key]
	if f != nil {
		f.members++
	}
	g.mu.Unlock()
	if f != nil {
		return nil
	}
	engines := g.engines[key.namespace]
	if len(engines) == 0 || n >= manyFlows*len(engines) && len(engines) < min(maxEngines, runtime.GOMAXPROCS(0)) {
		engines = append(engines, flowproc.Open())
		g.mu.Lock()
		g.engines[key.namespace] = engines
		g.mu.Unlock()
	}
	compiled, err := engines[n%len(engines)].Compile(ctx, key.query)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flows[key] = &shared{flow: compiled, members: 1, results: map[string]*result{}}
	return nil
}

// Close removes the worker from the group. The last worker ends the group.
func (m *Member) Close() error {
	var errs []error
	if m.own != nil {
		errs = append(errs, m.own.Close())
	}
	m.rejoin()
	if m.alone != nil {
		errs = append(errs, m.alone.Close())
	}
	g := m.group
	g.mu.Lock()
	key := flowKey{m.namespace, m.query}
	if f := g.flows[key]; m.shares && f != nil {
		if f.members--; f.members == 0 {
			delete(g.flows, key)
		}
	}
	g.mu.Unlock()
	g.groups.mu.Lock()
	g.members--
	last := g.members == 0
	if last {
		delete(g.groups.all, g.key)
	}
	g.groups.mu.Unlock()
	if !last {
		return errors.Join(errs...)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.session != nil {
		g.session.stop()
	}
	for _, engines := range g.engines {
		for _, e := range engines {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}

// Read implements endpoint.Source.
func (m *Member) Read(ctx context.Context, from exactlyonce.Position, n int) (records []endpoint.Record,
	to exactlyonce.Position,
	err error) {
	defer func() { m.batch = fmt.Sprintf("%q %q", position(from), position(to)) }()
	if m.group.interval > 0 {
		return m.readWindow(ctx, from, n)
	}
	records, to, here, err := m.group.at(from).read(ctx, from, n, &m.gap)
	if here {
		if m.own != nil {
			m.own.Close()
			m.own = nil
		}
	} else {
		if m.own == nil {
			if m.own, err = m.group.open(); err != nil {
				m.own = nil
				return nil, from, err
			}
		}
		records, to, err = m.own.Read(ctx, from, n)
		m.gap = endpoint.Gap(m.own)
		m.Own += uint64(len(records))
	}
	return records, to, err
}

// Gap implements endpoint.Gapped.
func (m *Member) Gap() string { return m.gap }

// Part reports whether the last read returned only a part of a window.
func (m *Member) Part() bool { return m.part }

func position(p exactlyonce.Position) string { return fmt.Sprintf("%q %d %q", p.Epoch, p.Seq, p.Sub) }

// at returns the group's session. It starts a new session at the position from if there is none, or
// if the session has never read anything. A session that failed continues at its own position.
func (g *group) at(from exactlyonce.Position) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.session == nil || g.session.barren() {
		g.session = newSession(from, g.interval)
	}
	g.session.start(g.open, g.most)
	return g.session
}

// chunk returns the maximum number of records that are read from the source at a time.
func (g *group) chunk() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// Run computes rows from the records that were read last. It also computes the next table from the
// current table was. Other workers share the rows, so callers must not change them.
func (m *Member) Run(ctx context.Context, records []endpoint.Record, was exactlyonce.Table) (rows []endpoint.Row,
	next exactlyonce.Table,
	err error) {
	switch {
	case m.query == "":
		return endpoint.Rows(records), "", nil
	case !m.shares:
		return m.alone.RunStateful(ctx, records, was)
	}
	rows, err = m.shared(ctx, records)
	return rows, "", err
}

// shared runs a flow that has no state.
func (m *Member) shared(ctx context.Context, records []endpoint.Record) (rows []endpoint.Row, err error) {
	g := m.group
	g.mu.Lock()
	f := g.flows[flowKey{m.namespace, m.query}]
	if f.alone {
		g.mu.Unlock()
		return m.runAlone(ctx, f, records)
	}
	if m.alone != nil {
		m.alone.Close()
		m.alone = nil
	}
	r := f.results[m.batch]
	if r == nil || f.members == 1 {
		r = &result{done: make(chan struct{})}
		f.keep(m.batch, r)
		g.mu.Unlock()
		g.run(ctx, f, m.batch, records, r)
	} else {
		g.mu.Unlock()
	}
	select {
	case <-r.done:
		return r.rows, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// runAlone runs a slow flow in the worker's own DuckDB. When the flow has been quick for long
// enough, the workers share it again.
func (m *Member) runAlone(ctx context.Context, f *shared, records []endpoint.Record) (rows []endpoint.Row, err error) {
	if m.alone == nil {
		if m.alone, err = flowproc.Compile(ctx, m.query); err != nil {
			m.alone = nil
			return nil, err
		}
		m.quick = 0
	}
	rows, took, err := m.alone.RunBatch(ctx, "", records)
	if m.quick++; err != nil || took > slow/2 {
		m.quick = 0
	}
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	f.alone = f.alone && m.quick < f.patience
	return rows, err
}

// keep keeps a result for the other workers that share the flow.
func (f *shared) keep(batch string, r *result) {
	if f.members == 1 {
		return
	}
	f.results[batch] = r
	if f.order = append(f.order, batch); len(f.order) > keptResults {
		delete(f.results, f.order[0])
		f.order = f.order[1:]
	}
}

// run runs a flow over a batch. If the run fails, its result is not kept.
func (g *group) run(ctx context.Context, f *shared, batch string, records []endpoint.Record, r *result) {
	defer close(r.done)
	var took time.Duration
	// the run must not end with ctx, because other workers may wait for its result
	r.rows, took, r.err = f.flow.RunBatch(context.WithoutCancel(ctx), batch, records)
	g.mu.Lock()
	defer g.mu.Unlock()
	if took > slow && !f.alone {
		f.alone, f.patience = true, min(max(2*f.patience, calm), maxCalm)
	}
	if r.err != nil && f.results[batch] == r {
		delete(f.results, batch)
	}
}
