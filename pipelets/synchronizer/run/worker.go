package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	api "github.com/netcraq/netcraq/api/pipelet"
	"github.com/netcraq/netcraq/pipelets/core"
	"github.com/netcraq/netcraq/pipelets/synchronizer/flow"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store/etcd"
)

// idle is how long a worker waits for records before it looks whether all is well.
const idle = 5 * time.Second

// Config says how pipelets are run.
type Config struct {
	Secrets string // the folder with a folder for each secret
	Log     *slog.Logger
}

// Run runs pipelets until ctx ends.
func Run(ctx context.Context, cfg Config, all []api.Pipelet) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range all {
		if p.Spec.Suspend {
			cfg.Log.Info("suspended", "pipelet", p.Namespace+"/"+p.Name)
			continue
		}
		for i := range p.Spec.Src {
			for j := range p.Spec.Dst {
				group.Go(func() error { return cfg.worker(ctx, p, i, j) })
			}
		}
	}
	return group.Wait()
}

// StateName is under which name a destination knows a pipelet's source. Neither the flow nor the
// addresses are in it: they may change, and the pipelet goes on where it was.
func StateName(p *api.Pipelet, src, dst int) string {
	text, _ := json.Marshal([]string{p.Spec.Src[src].Etcd.Prefix, p.Spec.Dst[dst].Etcd.Prefix})
	sum := sha256.Sum256(text)
	return p.Namespace + "/" + p.Name + "/" + hex.EncodeToString(sum[:8])
}

// worker copies from one source to one destination.
func (cfg Config) worker(ctx context.Context, p api.Pipelet, i, j int) error {
	source, err := etcd.NewSource(*p.Spec.Src[i].Etcd, cfg.Secrets)
	if err != nil {
		return err
	}
	defer source.Close()
	sink, err := etcd.NewSink(*p.Spec.Dst[j].Etcd, cfg.Secrets, StateName(&p, i, j), p.Spec.EOIO)
	if err != nil {
		return err
	}
	defer sink.Close()
	run := func(_ context.Context, records []store.Record) (rows []store.Row, err error) {
		for _, r := range records {
			rows = append(rows, store.Row{Key: r.Key, Value: r.Value, Deleted: r.Deleted})
		}
		return rows, nil
	}
	if p.Spec.Flow != "" {
		f, err := flow.Compile(ctx, p.Spec.Flow)
		if err != nil {
			return err
		}
		defer f.Close()
		run = f.Run
	}
	m := core.New(core.Config{
		Max:      100,
		Interval: time.Duration(p.Spec.Interval * float64(time.Second)),
		First:    50 * time.Millisecond,
		Longest:  10 * time.Second,
	})
	Drive(ctx, m, source, sink, run, cfg.Log.With("pipelet", p.Namespace+"/"+p.Name, "src", i, "dst", j))
	return nil
}

// Drive does what a machine says, until ctx ends.
func Drive(ctx context.Context, m *core.Machine, source store.Source, sink store.Sink,
	run func(context.Context, []store.Record) ([]store.Row, error), log *slog.Logger) {
	var records []store.Record
	var rows []store.Row
	begin, said := time.Now(), core.Condition{}
	for ctx.Err() == nil {
		a := m.Next(time.Since(begin))
		var r core.Result
		switch a.Do {
		case core.Open:
			r.State, r.Err = sink.Open(ctx)
		case core.Read:
			until, cancel := context.WithTimeout(ctx, idle)
			records, r.To, r.Err = source.Read(until, a.From, a.Max)
			r.Records = len(records)
			cancel()
		case core.Flow:
			rows, r.Err = run(ctx, records)
			r.Rows = len(rows)
		case core.Commit:
			r.Err = sink.Commit(ctx, a.Was, a.Next, rows)
		case core.Wait:
			select {
			case <-time.After(a.For):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		m.Done(a, r)
		if c := m.Condition(); c != said {
			said = c
			log.Info("condition", "ready", c.Ready, "reason", c.Reason, "message", c.Message, "rows", m.Known().Rows)
		}
	}
	log.Info("stopped", "rows", m.Known().Rows)
}
