package operator

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/run"
)

// TestMembers checks that this machine's clock decides which replicas are alive. A Lease is valid
// from the time of its last observed change, whatever time it contains. A released Lease is not
// valid.
func TestMembers(t *testing.T) {
	m := &members{namespace: "n", self: "a", log: slog.Default(), seen: map[string]sighting{},
		changed: make(chan event.TypedGenericEvent[*pipeletapi.Pipelet], 1)}
	now := time.Now()
	lease := func(name, holder string, seconds int32, renewed time.Time) *coordination.Lease {
		at := metav1.NewMicroTime(renewed)
		return &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
			Spec: coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at}}
	}
	is := func(what string, after time.Duration, want ...string) {
		t.Helper()
		live, _ := m.live(now.Add(after))
		slices.Sort(live)
		if !slices.Equal(live, want) {
			t.Errorf("%s: %v live, want %v", what, live, want)
		}
	}
	told := func(what string, want bool) {
		t.Helper()
		select {
		case <-m.changed:
			if !want {
				t.Errorf("%s: the leader is told", what)
			}
		default:
			if want {
				t.Errorf("%s: the leader is not told", what)
			}
		}
	}
	m.observe(lease("replica-a", "a", 15, now), now)
	told("a new one", true)
	m.observe(lease("replica-b", "b", 15, now.Add(-24*time.Hour)), now) // the clock of replica b is a day late
	<-m.changed
	// the Lease of the leader election, which belongs to no replica
	m.observe(lease("netcraq-pipelets", "b", 15, now), now)
	other := lease("replica-c", "c", 15, now)
	other.Namespace = "other"
	m.observe(other, now)
	told("another's Lease", false)
	is("two", time.Second, "a", "b")
	m.observe(lease("replica-a", "a", 15, now.Add(2*time.Second)), now.Add(10*time.Second))
	// the Lease of replica b is observed again, unchanged
	m.observe(lease("replica-b", "b", 15, now.Add(-24*time.Hour)), now.Add(10*time.Second))
	told("renewed", false)
	is("one was renewed", 16*time.Second, "a")
	m.observe(lease("replica-a", "", 1, now.Add(12*time.Second)), now.Add(12*time.Second))
	told("given back", true)
	is("it was given back", 12*time.Second, "b")
	m.observe(lease("replica-b", "b", 15, now.Add(-23*time.Hour)), now.Add(20*time.Second))
	is("it is back", 34*time.Second, "b")
	if _, old := m.live(now.Add(30 * time.Second).Add(forget)); !slices.Contains(old, "a") {
		t.Errorf("%v died long ago, and a did", old)
	}
	m.gone("replica-b")
	is("it is deleted", 21*time.Second)
}

// TestStatus checks that a status reports the worst state of the pipelet's workers. If all workers
// run, the status reports the message of a worker that has a message.
func TestStatus(t *testing.T) {
	split := exactlyonce.Condition{Ready: true, Reason: exactlyonce.WindowSplit, Message: "in parts"}
	well := exactlyonce.Condition{Ready: true, Reason: "Running"}
	bad := exactlyonce.Condition{Reason: "Refused", Message: "no such table"}
	for _, c := range []struct {
		workers        []exactlyonce.Condition
		state, reason  string
		message, error string
	}{
		{[]exactlyonce.Condition{well, well}, pipeletapi.Running, "Running", "", ""},
		{[]exactlyonce.Condition{well, split}, pipeletapi.Running, exactlyonce.WindowSplit, "src[1] to dst[0]: in parts", ""},
		{[]exactlyonce.Condition{split, well}, pipeletapi.Running, exactlyonce.WindowSplit, "src[0] to dst[0]: in parts", ""},
		{[]exactlyonce.Condition{split, bad, well}, pipeletapi.Failing, "Refused", "src[1] to dst[0]: no such table", "no such table"},
		{[]exactlyonce.Condition{well, {Reason: "Starting"}}, pipeletapi.Starting, "Starting", "", ""},
	} {
		var p pipeletapi.Pipelet
		var all []run.Progress
		for i, w := range c.workers {
			all = append(all, run.Progress{Src: i, Condition: w})
			if !w.Ready {
				all[i].LastError = w.Message
			}
		}
		(&known{}).status(&p, all, time.Now())
		got := p.Status.Conditions[0]
		if p.Status.State != c.state || got.Reason != c.reason || got.Message != c.message ||
			(got.Status == "True") != (c.state == pipeletapi.Running) || p.Status.LastError != c.error {
			t.Errorf("%+v: %s, %+v, last error %q", c.workers, p.Status.State, got, p.Status.LastError)
		}
	}
}
