package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/flowproc"
	"github.com/netcraq/netcraq/pipelets/synchronizer/run"
)

const (
	// statusEvery is the interval between status updates while only numbers change. It is long
	// because each update writes to the API server's etcd.
	statusEvery = 10 * time.Second
	// leaseLook is the interval at which the reconciler checks whether this replica has its Lease.
	leaseLook = 500 * time.Millisecond
)

// reconciler makes the runner run the Pipelets that are assigned to this replica, and writes their
// status.
type reconciler struct {
	client  client.Client
	rules   *rules
	members *members
	runner  *run.Runner
	log     *slog.Logger
	events  chan event.TypedGenericEvent[*pipeletapi.Pipelet]

	mu    sync.Mutex
	known map[client.ObjectKey]*known
}

// known is what the reconciler remembers about a Pipelet.
type known struct {
	generation int64 // the generation of the Pipelet that was checked last
	wrong      error // the error of the last check
	written    uint64
	at         time.Time // time when the status was last written
}

func newReconciler(c client.Client, rules *rules, m *members, log *slog.Logger) *reconciler {
	return &reconciler{client: c, rules: rules, members: m, log: log, known: map[client.ObjectKey]*known{},
		events: make(chan event.TypedGenericEvent[*pipeletapi.Pipelet], 1024)}
}

// changed requests an early status update for a Pipelet. It never blocks. If the request is
// dropped, the status is updated at the next interval.
func (r *reconciler) changed(namespace, name string) {
	p := &pipeletapi.Pipelet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	select {
	case r.events <- event.TypedGenericEvent[*pipeletapi.Pipelet]{Object: p}:
	default:
	}
}

func (r *reconciler) setup(mgr ctrl.Manager) error {
	if err := metrics.Registry.Register(&collector{r}); err != nil {
		// a test may run another operator in the same process, which has already registered the
		// collector
		if _, twice := err.(prometheus.AlreadyRegisteredError); !twice {
			return err
		}
	}
	skip := true // skip the check for unique names, because a test may run another operator in the same process
	leads := false
	return ctrl.NewControllerManagedBy(mgr).Named(Name).
		For(&pipeletapi.Pipelet{},
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reassigned))).
		WatchesRawSource(source.Channel(r.events, &handler.TypedEnqueueRequestForObject[*pipeletapi.Pipelet]{})).
		WithOptions(controller.Options{SkipNameValidation: &skip, NeedLeaderElection: &leads}).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler. It runs after each change, and at the interval
// statusEvery.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var p pipeletapi.Pipelet
	err := r.client.Get(ctx, req.NamespacedName, &p)
	if apierrors.IsNotFound(err) || err == nil && (p.DeletionTimestamp != nil || p.Status.Assigned != r.members.self) {
		r.runner.Remove(req.Namespace, req.Name)
		r.mu.Lock()
		delete(r.known, req.NamespacedName)
		r.mu.Unlock()
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !r.members.holds.Load() {
		return ctrl.Result{RequeueAfter: leaseLook}, nil
	}
	r.mu.Lock()
	k := r.known[req.NamespacedName]
	if k == nil {
		k = &known{}
		r.known[req.NamespacedName] = k
	}
	r.mu.Unlock()
	if k.generation != p.Generation {
		// Check the Pipelet again. The webhook may have been unreachable, or the rules may have
		// changed since.
		k.wrong = r.rules.check(ctx, &p)
		if ctx.Err() != nil {
			return ctrl.Result{}, ctx.Err()
		}
		if errors.Is(k.wrong, flowproc.ErrUnavailable) { // the Pipelet may be valid, so check it again later
			return ctrl.Result{}, k.wrong
		}
		k.generation = p.Generation
	}
	if k.wrong != nil {
		r.runner.Remove(p.Namespace, p.Name)
	} else {
		r.runner.Apply(&p)
	}
	was := p.DeepCopy()
	if k.status(&p, r.runner.Progress(p.Namespace, p.Name), time.Now()) {
		if err := r.client.Status().Patch(ctx, &p, client.MergeFrom(was)); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: statusEvery}, nil
}

// status computes the status of a Pipelet from the progress of its workers. It reports whether the
// status must be written. That is not so if only numbers have changed since a moment ago.
func (k *known) status(p *pipeletapi.Pipelet, workers []run.Progress, now time.Time) bool {
	was := p.Status
	s := &p.Status
	s.ObservedGeneration = p.Generation
	s.Workers, s.Rows = nil, 0
	state, reason, message := pipeletapi.Running, "Running", ""
	worst := func(st, re, me string) {
		rank := map[string]int{pipeletapi.Running: 0, pipeletapi.Starting: 1, pipeletapi.Failing: 2}
		if rank[st] > rank[state] || st == state && message == "" {
			state, reason, message = st, re, me
		}
	}
	var lag time.Duration
	var written uint64
	for _, w := range workers {
		out := pipeletapi.Worker{Src: int32(w.Src), Dst: int32(w.Dst),
			State: pipeletapi.Running, Reason: w.Condition.Reason,
			Message: clip(w.Condition.Message), Offset: offset(w.State.Position), Rows: int64(w.State.Rows), Lag: "0"}
		switch {
		case w.Condition.Ready && w.Condition.Message == "":
			out.Reason = ""
		case w.Condition.Ready:
		case w.Condition.Message == "":
			out.State = pipeletapi.Starting
		default:
			out.State = pipeletapi.Failing
		}
		if out.Message != "" {
			worst(out.State, w.Condition.Reason, fmt.Sprintf("src[%d] to dst[%d]: %s", w.Src, w.Dst, out.Message))
		} else {
			worst(out.State, w.Condition.Reason, "")
		}
		if !w.Behind.IsZero() {
			behind := now.Sub(w.Behind)
			lag, out.Lag = max(lag, behind), seconds(behind)
		}
		if w.LastError != "" && out.State == pipeletapi.Failing || s.LastError == "" {
			s.LastError = clip(w.LastError)
		}
		s.Rows += out.Rows
		written += w.Written
		s.Workers = append(s.Workers, out)
	}
	switch {
	case k.wrong != nil:
		state, reason, message = pipeletapi.Invalid, "Invalid", clip(k.wrong.Error())
		s.LastError = message
	case p.Spec.Suspend:
		state, reason, message = pipeletapi.Suspended, "Suspended", "spec.suspend is set"
	}
	s.State, s.Lag = state, seconds(lag)
	if state == pipeletapi.Invalid || state == pipeletapi.Suspended {
		s.Lag = ""
	}
	if written < k.written { // the workers were restarted, so their number of written records began again
		k.written, k.at = 0, time.Time{}
	}
	if d := now.Sub(k.at); k.at.IsZero() || d >= statusEvery/2 {
		s.Rate = "0"
		if !k.at.IsZero() && d > 0 {
			s.Rate = fmt.Sprintf("%.4g", float64(written-k.written)/d.Seconds())
		}
		k.written, k.at = written, now
	}
	ready := metav1.ConditionFalse
	if state == pipeletapi.Running {
		ready = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: pipeletapi.Ready, Status: ready, Reason: reason,
		Message: message, ObservedGeneration: p.Generation})
	return changed(&was, s)
}

func changed(a, b *pipeletapi.Status) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	return fmt.Sprintf("%+v", x) != fmt.Sprintf("%+v", y)
}

// clip limits the length of a text in a status, in bytes.
func clip(text string) string {
	const most = 1024
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

func seconds(d time.Duration) string {
	if d < 100*time.Millisecond {
		return "0"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

func offset(p exactlyonce.Position) string {
	if p == (exactlyonce.Position{}) {
		return ""
	}
	text := fmt.Sprintf("%s/%d", p.Epoch, p.Seq)
	if p.Sub != "" {
		text += fmt.Sprintf("/%q", p.Sub)
	}
	return text
}

// collector exports the numbers of the workers to Prometheus.
type collector struct{ r *reconciler }

var (
	labels    = []string{"namespace", "pipelet", "src", "dst"}
	rowsDesc  = prometheus.NewDesc("netcraq_pipelet_rows_total", "Rows written, since the pipelet is there.", labels, nil)
	readDesc  = prometheus.NewDesc("netcraq_pipelet_records_total", "Records written, since the worker began.", labels, nil)
	lagDesc   = prometheus.NewDesc("netcraq_pipelet_lag_seconds", "Since when there are records that are not written.", labels, nil)
	readyDesc = prometheus.NewDesc("netcraq_pipelet_ready", "1: the worker runs.", labels, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rowsDesc, readDesc, lagDesc, readyDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.r.mu.Lock()
	var keys []client.ObjectKey
	for key := range c.r.known {
		keys = append(keys, key)
	}
	c.r.mu.Unlock()
	for _, key := range keys {
		for _, w := range c.r.runner.Progress(key.Namespace, key.Name) {
			at := []string{key.Namespace, key.Name, fmt.Sprint(w.Src), fmt.Sprint(w.Dst)}
			lag, ready := 0.0, 0.0
			if !w.Behind.IsZero() {
				lag = time.Since(w.Behind).Seconds()
			}
			if w.Condition.Ready {
				ready = 1
			}
			out <- prometheus.MustNewConstMetric(rowsDesc, prometheus.CounterValue, float64(w.State.Rows), at...)
			out <- prometheus.MustNewConstMetric(readDesc, prometheus.CounterValue, float64(w.Written), at...)
			out <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, lag, at...)
			out <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, ready, at...)
		}
	}
}
