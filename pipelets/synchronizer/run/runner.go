package run

import (
	"context"
	"reflect"
	"sync"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/etcdkeys"
)

// Runner runs the workers of a set of pipelets. The set may change.
type Runner struct {
	cfg Config

	mu     sync.Mutex
	all    map[string]*running
	closed bool
}

// running is a pipelet that runs, with its workers.
type running struct {
	spec    pipeletapi.Spec
	cancel  context.CancelFunc
	group   sync.WaitGroup
	workers []*worker
}

// NewRunner makes a runner without pipelets.
func NewRunner(cfg Config) *Runner {
	if cfg.Shared != nil {
		cfg.hub = etcdkeys.NewHub()
	}
	return &Runner{cfg: cfg, all: map[string]*running{}}
}

// Apply makes a pipelet run as specified. It starts, changes or suspends the pipelet. It returns
// when the workers that are no longer wanted have ended.
func (r *Runner) Apply(p *pipeletapi.Pipelet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	key := p.Namespace + "/" + p.Name
	if old := r.all[key]; old != nil {
		if reflect.DeepEqual(old.spec, p.Spec) {
			return
		}
		r.end(key)
	}
	p = p.DeepCopy()
	ctx, cancel := context.WithCancel(context.Background())
	n := &running{spec: p.Spec, cancel: cancel}
	r.all[key] = n
	if p.Spec.Suspend {
		r.cfg.Log.Info("suspended", "pipelet", key)
		return
	}
	for i := range p.Spec.Src {
		for j := range p.Spec.Dst {
			w := &worker{Src: i, Dst: j, changed: func() {},
				p:   Progress{Src: i, Dst: j, Condition: exactlyonce.Condition{Reason: "Starting"}},
				log: r.cfg.Log.With("pipelet", key, "src", i, "dst", j)}
			if r.cfg.Changed != nil {
				w.changed = func() { r.cfg.Changed(p.Namespace, p.Name) }
			}
			n.workers = append(n.workers, w)
			n.group.Go(func() { r.cfg.keep(ctx, p, w) })
		}
	}
}

// Remove ends the workers of a pipelet.
func (r *Runner) Remove(namespace, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(namespace + "/" + name)
}

// end ends the workers of a pipelet. A batch in progress may or may not be written, because the
// next worker reads the state from its destination.
func (r *Runner) end(key string) {
	n := r.all[key]
	if n == nil {
		return
	}
	n.cancel()
	n.group.Wait()
	delete(r.all, key)
	for _, w := range n.workers {
		w.log.Info("stopped", "rows", w.Progress().State.Rows)
	}
}

// Progress returns the progress of a pipelet's workers.
func (r *Runner) Progress(namespace, name string) (all []Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.all[namespace+"/"+name]; n != nil {
		for _, w := range n.workers {
			all = append(all, w.Progress())
		}
	}
	return all
}

// Close ends all workers. Afterwards no worker starts.
func (r *Runner) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, n := range r.all {
		n.cancel()
	}
	for key := range r.all {
		r.end(key)
	}
}

// Run runs pipelets until ctx ends.
func Run(ctx context.Context, cfg Config, all []pipeletapi.Pipelet) {
	r := NewRunner(cfg)
	for i := range all {
		r.Apply(&all[i])
	}
	<-ctx.Done()
	r.Close()
}
