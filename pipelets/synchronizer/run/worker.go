package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/etcdkeys"
	"github.com/netcraq/netcraq/pipelets/synchronizer/plan"
	"github.com/netcraq/netcraq/pipelets/synchronizer/share"
	"github.com/netcraq/netcraq/pipelets/synchronizer/stores"
)

// idle is the maximum time for which a worker waits for records. Then it checks its context and its
// source again.
const idle = 5 * time.Second

// Config configures the running of pipelets.
type Config struct {
	// Secrets returns the secrets of a namespace.
	Secrets func(namespace string) endpoint.Secrets
	Shared  *share.Groups // shares sources and flows among workers; if nil, each worker reads its source separately
	Log     *slog.Logger
	hub     *etcdkeys.Hub // shares connections to etcd among workers; if nil, each worker writes separately
	// Changed is called when the condition of a worker has changed. It may be nil.
	Changed func(namespace, name string)
}

// longest is the longest pause between two attempts of a worker.
const longest = 10 * time.Second

// keep runs a worker until ctx ends. If the worker cannot start, for example because a secret is
// missing, keep tries again. Other workers are not affected.
func (cfg Config) keep(ctx context.Context, p *pipeletapi.Pipelet, w *worker) {
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, longest) {
		err := cfg.work(ctx, p, w)
		if err == nil {
			return
		}
		w.is(exactlyonce.Condition{Reason: exactlyonce.KindOf(err).String(), Message: err.Error()})
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// StateName returns the name under which a destination stores the state of a pipelet's source. The
// name contains neither the flow nor the addresses. So these may change, and the pipelet continues
// at its position.
func StateName(p *pipeletapi.Pipelet, src, dst int) string {
	text, _ := json.Marshal([]string{stores.Name(p.Spec.Src[src]), stores.Name(p.Spec.Dst[dst])})
	sum := sha256.Sum256(text)
	return p.Namespace + "/" + p.Name + "/" + hex.EncodeToString(sum[:8])
}

// work copies records from one source to one destination. It returns an error if it cannot start.
func (cfg Config) work(ctx context.Context, p *pipeletapi.Pipelet, w *worker) error {
	i, j := w.Src, w.Dst
	secrets := cfg.Secrets(p.Namespace)
	sink, err := stores.NewSink(p.Spec.Dst[j], secrets, cfg.hub, StateName(p, i, j), p.Spec.EOIO)
	if err != nil {
		return err
	}
	defer sink.Close()
	interval := time.Duration(p.Spec.Interval * float64(time.Second))
	open := func() (endpoint.Source, error) { return stores.NewSource(p.Spec.Src[i], secrets) }
	groups, key := cfg.Shared, plan.Key(p, i)
	if groups == nil { // make a group that has only this worker
		groups = share.New()
	}
	most := 100
	if b, ok := sink.(endpoint.Batcher); ok {
		most = b.Most()
	}
	source, err := groups.Join(ctx, key, p.Namespace, interval, plan.Query(p.Spec.Flow), plan.Query(p.Spec.State), most,
		open)
	if err != nil {
		return err
	}
	defer source.Close()
	batch := most
	// allow large batches, because a flow may aggregate a whole window
	if interval > 0 && p.Spec.Flow != "" {
		batch = share.WindowRecords
	}
	m := exactlyonce.New(exactlyonce.Config{Max: batch, First: 50 * time.Millisecond, Longest: longest})
	limit := rate.NewLimiter(rate.Inf, most)
	if p.Spec.Rate > 0 {
		limit.SetLimit(rate.Limit(p.Spec.Rate))
	}
	drive(ctx, m, source, sink, limit, w)
	return nil
}

// wait waits until the rate limit permits that many records.
func wait(ctx context.Context, limit *rate.Limiter, records int) error {
	for ; records > 0; records -= limit.Burst() {
		if err := limit.WaitN(ctx, min(records, limit.Burst())); err != nil {
			return err
		}
	}
	return nil
}

// drive executes the actions of a machine until ctx ends.
func drive(ctx context.Context, m *exactlyonce.Machine, source *share.Member, sink endpoint.Sink, limit *rate.Limiter,
	w *worker) {
	var records []endpoint.Record
	var rows []endpoint.Row
	for ctx.Err() == nil {
		a := m.Next()
		var r exactlyonce.Result
		switch a.Do {
		case exactlyonce.Open:
			r.State, r.Err = sink.Open(ctx)
		case exactlyonce.Read:
			until, cancel := context.WithTimeout(ctx, idle)
			records, r.To, r.Err = source.Read(until, a.From, a.Max)
			r.Records, r.Part = len(records), source.Part()
			if r.Records == 0 {
				r.Gap = source.Gap()
			}
			for _, record := range records {
				r.Gap = cmp.Or(record.Gap, r.Gap)
			}
			cancel()
			if err := wait(ctx, limit, r.Records); err != nil && ctx.Err() == nil {
				r.Err = err
			}
		case exactlyonce.Flow:
			rows, r.Table, r.Err = source.Run(ctx, records, a.Was.Table)
			r.Rows = len(rows)
		case exactlyonce.Commit:
			r.Err = sink.Commit(ctx, a.Was, a.Next, rows)
		case exactlyonce.Wait:
			select {
			case <-time.After(a.For):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		m.Done(a, r)
		w.did(a, r, m, len(records))
	}
}
