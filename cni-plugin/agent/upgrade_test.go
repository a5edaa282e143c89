package agent_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/identity"
)

// envOldAgent is the environment variable with the path of a netcraq-agent of the previous version.
// Agents of that version shared the Secret netcraq-ca.
const envOldAgent = "NETCRAQ_OLD_AGENT"

// TestUpgrade replaces agents of the previous version one after the other, as docs/kubernetes.md
// says. The chain must continue throughout, be complete after each step, and lose nothing. This
// also holds when the old authority is removed.
func TestUpgrade(t *testing.T) {
	old := os.Getenv(envOldAgent)
	if old == "" {
		t.Skipf("skipped: %s names no netcraq-agent of the version before (go build it from a commit before the Secret netcraq-authority)", envOldAgent)
	}
	k := newCluster(t, 3)
	ctx := t.Context()
	shared, err := identity.NewAuthority(time.Now()) // the format of an authority is the same in both versions
	check(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "netcraq-system", Name: "netcraq-ca"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: shared.Certificate, corev1.TLSPrivateKeyKey: shared.Key}}
	check(t, k.c.Create(ctx, secret))
	k.Kubectl(t, k.options, "apply", "-f", "../deploy/migration.yaml")
	bin, before := k.nodes[0].bin, t.TempDir()
	entries, err := os.ReadDir(bin)
	check(t, err)
	for _, e := range entries {
		from := filepath.Join(bin, e.Name())
		if e.Name() == "netcraq-agent" {
			from = old
		}
		check(t, os.Symlink(from, filepath.Join(before, e.Name())))
	}
	args := make([][]string, len(k.nodes))
	for i, n := range k.nodes {
		args[i] = n.args
		n.bin = before
		if at := slices.Index(n.args, "--admin"); at >= 0 { // the old flag takes an address, and there are no tokens
			n.args = slices.Clone(n.args[:at])
		}
		k.join(i)
	}
	check(t, k.c.Create(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"},
		Spec: v1alpha1.NetcraqChainSpec{Length: 3, Profile: 128, Slots: 64, LeaseMillis: 1000}}))
	c := k.wait("main", "formed by the version before", serving(3))
	p := k.nodes[0].mustAdd(t)
	control := admin.NewClient(lead(t, k.nodes[0].space, admin.DefaultAddress)) // the old version needs no token
	added, err := control.AddKey(ctx, "main", admin.KeySpec{Name: "/leader", Value: []byte("alice")})
	check(t, err)
	key := wire.Key(added.KeyID)
	reader := newClientAt(t, p.space, netip.MustParseAddr(c.Status.ServiceAddress))
	expect(t, "before", reader, key, "alice")

	for _, i := range []int{2, 0, 1} { // first a worker, then the leader, then another worker
		t.Logf("%s is upgraded", k.name(i))
		n, epoch := k.nodes[i], k.wait("main", "whole", serving(3)).Status.Epoch
		n.kill()
		if i != 0 { // the agent on this node does not lead, and the pod p is on another node
			k.wait("main", "going on without a member", serving(2))
			expect(t, "with an agent away", reader, key, "alice")
		}
		n.bin, n.args = bin, args[i]
		n.start()
		k.wait("main", "whole again", func(c *v1alpha1.NetcraqChain) bool { return serving(3)(c) && c.Status.Epoch > epoch })
		expect(t, "with an agent upgraded", reader, key, "alice")
		if !strings.Contains(n.output.String(), "the authority of the version before is believed") {
			t.Errorf("%s does not say that it believes the old authority", k.name(i))
		}
	}

	t.Log("the old authority is taken away")
	check(t, k.c.Delete(ctx, secret))
	k.Kubectl(t, k.options, "delete", "-f", "../deploy/migration.yaml")
	for _, n := range k.nodes {
		until(t, "an agent hears of it", func() error {
			if strings.Contains(n.output.String(), "is not believed any more") {
				return nil
			}
			return context.DeadlineExceeded
		})
	}
	expect(t, "without the old authority", reader, key, "alice")
	put(t, k.admin(0), reader, key, "bob")
	k.nodes[1].kill() // the client must connect again
	k.wait("main", "going on without a member", serving(2))
	k.nodes[1].start()
	k.wait("main", "whole again", serving(3))
	expect(t, "at the end", reader, key, "bob")
}
