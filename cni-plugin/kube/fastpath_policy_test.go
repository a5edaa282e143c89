package kube_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/kube/fastpath"
	"github.com/netcraq/netcraq/internal/testutil/kubetest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestFastPathPolicy checks the admission policy. A pod that requests the fast path without the
// right is refused with the reason, whoever creates it. The policy must not affect other pods.
func TestFastPathPolicy(t *testing.T) {
	s := kubetest.Start(t, kubetest.Options{})
	apply(t, s)
	ctx := t.Context()
	admin := clientOf(t, s, s.Config.BearerToken) // this user has all rights except for the fast path
	must(t, rbac.AddToScheme(admin.Scheme()))
	for _, ns := range []string{"team", "other"} {
		must(t, admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
		for _, account := range []string{"fast", "default"} {
			must(t, client.IgnoreAlreadyExists(
				admin.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: ns}})))
		}
	}
	role := &rbac.Role{ObjectMeta: metav1.ObjectMeta{Name: "fast-path", Namespace: "team"},
		Rules: []rbac.PolicyRule{{APIGroups: []string{"netcraq.io"}, Resources: []string{"fastpaths"}, Verbs: []string{"use"}}}}
	binding := &rbac.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName,
		Kind: "Role", Name: "fast-path"},
		Subjects: []rbac.Subject{{Kind: "ServiceAccount", Name: "fast", Namespace: "team"}}}
	must(t, admin.Create(ctx, role))
	must(t, admin.Create(ctx, binding.DeepCopy()))
	pod := func(namespace, account, asks string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: namespace,
			Finalizers: []string{"test/held"}}, Spec: corev1.PodSpec{ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
		if asks != "" {
			p.Annotations = map[string]string{fastpath.Annotation: asks}
		}
		return p
	}
	refused := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'netcraq-fast-path'")
	}
	poll.Until(t, 30*time.Second, "the policy is in force", func() bool {
		return refused(admin.Create(ctx, pod("team", "default", "true"), client.DryRunAll))
	})
	for _, c := range []struct {
		namespace, account, asks, want string // want is part of the expected error; "" means no error
	}{
		{"team", "fast", "true", ""},
		{"team", "fast", "false", ""},
		{"team", "fast", "", ""},
		{"team", "default", "false", ""},
		{"team", "default", "", ""},
		{"team", "fast", "yes", `is "true" or "false"`},
		{"team", "default", "true", "the service account default may not use the fast path in the namespace team: give it a Role with the verb use on fastpaths.netcraq.io"},
		{"other", "fast", "true", "the service account fast may not use the fast path in the namespace other"},
		// This API server assigns no account to pods, and a static pod never has an account.
		{"team", "", "true", "may not use the fast path"},
	} {
		err := admin.Create(ctx, pod(c.namespace, c.account, c.asks), client.DryRunAll)
		if (err == nil) != (c.want == "") || err != nil && (!refused(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := admin.Create(ctx, pod("team", "default", "true"), client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("the refusal is no 403: %v", err)
	}

	// A pod that does not request the fast path when it is created cannot request it later. A pod
	// that has requested it can still be changed after the right was revoked.
	quiet, asking := pod("team", "default", ""), pod("team", "fast", "true")
	must(t, admin.Create(ctx, quiet))
	must(t, admin.Create(ctx, asking))
	quiet.Annotations = map[string]string{fastpath.Annotation: "true"}
	if err := admin.Update(ctx, quiet); !refused(err) {
		t.Errorf("a pod asks afterwards: %v", err)
	}
	must(t, admin.Delete(ctx, binding.DeepCopy()))
	poll.Until(t, 30*time.Second, "the right is taken back", func() bool {
		return refused(admin.Create(ctx, pod("team", "fast", "true"), client.DryRunAll))
	})
	asking.Finalizers = nil
	if err := admin.Update(ctx, asking); err != nil {
		t.Errorf("a pod whose account has lost the right cannot be changed: %v", err)
	}
}
