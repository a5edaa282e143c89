package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/netcraq/netcraq/cni-plugin/agent"
)

// TestReadyWithPolicies starts an agent on a rebooted node, with and without the DaemonSet that
// enforces network policies. The agent must not attach pods before the node enforces the policies.
func TestReadyWithPolicies(t *testing.T) {
	set := func(namespace string, args ...string) *apps.DaemonSet {
		s := &apps.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: policiesName, Namespace: namespace,
			Labels: map[string]string{agentLabel: policiesName}}}
		s.Spec.Template.Spec.Containers = []corev1.Container{{Args: append([]string{"--interfaces=ncq"}, args...)}}
		return s
	}
	going := set("netcraq-system")
	going.Finalizers, going.DeletionTimestamp = []string{"foregroundDeletion"}, &metav1.Time{Time: metav1.Now().Time}
	for name, c := range map[string]struct {
		sets  []client.Object
		waits bool
	}{
		"no DaemonSet":        {nil, false},
		"one":                 {[]client.Object{set("netcraq-system")}, true},
		"one that fails open": {[]client.Object{set("netcraq-system", "--fail-open")}, false},
		"one that is deleted": {[]client.Object{going}, false},
		"another namespace's": {[]client.Object{set("default")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, err := agent.New(agent.Options{Dir: t.TempDir(), FirstPort: 1, LastPort: 2})
				if err != nil {
					t.Fatal(err)
				}
				var answers, there atomic.Bool
				list := func(ctx context.Context, w client.WithWatch, to client.ObjectList,
					o ...client.ListOption) error {
					if !answers.Load() {
						return errors.New("the API server does not answer")
					}
					return w.List(ctx, to, o...)
				}
				r := fake.NewClientBuilder().WithObjects(c.sets...).
					WithInterceptorFuncs(interceptor.Funcs{List: list}).Build()
				ended := make(chan struct{})
				go func() {
					readyWithPolicies(t.Context(), r, "netcraq-system", a, func(table string) (bool, error) {
						return there.Load(), nil
					}, slog.New(slog.DiscardHandler))
					close(ended)
				}()
				synctest.Wait()
				if s := a.Status(); s.Ready || !strings.Contains(s.Reason, "does not answer") {
					t.Errorf("before the API server answers: %+v", s)
				}
				answers.Store(true)
				time.Sleep(2 * policiesEvery)
				if s := a.Status(); s.Ready == c.waits ||
					c.waits && !strings.Contains(s.Reason, "the DaemonSet netcraq-policies") {
					t.Errorf("without rules: %+v", s)
				}
				there.Store(true)
				time.Sleep(2 * policiesEvery)
				if s := a.Status(); !s.Ready {
					t.Errorf("with rules: %+v", s)
				}
				<-ended
			})
		})
	}
}
