package agent_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/internal/testutil/before"
)

// TestMixedAgents upgrades a node's agent and its CNI plugin from the last release to this tree,
// and back, in every order. Meanwhile two pods talk over one connection, which must not break. Each
// combination of agent and plugin makes, checks and removes attachments, also those that earlier
// combinations made. So each release must be able to read the other's records.
func TestMixedAgents(t *testing.T) {
	old := before.Build(t, "./cni-plugin/netcraq-agent", "./cni-plugin/netcraq-cni")
	n := newNode(t, "10.244.1.0/24")
	now := n.bin
	bin := t.TempDir() // libcni searches this folder for plugins
	entries, err := os.ReadDir(now)
	check(t, err)
	for _, e := range entries {
		check(t, os.Symlink(filepath.Join(now, e.Name()), filepath.Join(bin, e.Name())))
	}
	release := map[string]string{"before": old, "now": now}
	use := func(command, which string) {
		t.Helper()
		link := filepath.Join(bin, command)
		check(t, os.Remove(link))
		check(t, os.Symlink(filepath.Join(release[which], command), link))
	}
	n.bin = bin
	n.cni.Path = []string{bin}
	l := n.list()

	use("netcraq-agent", "before")
	use("netcraq-cni", "before")
	n.start()
	p, q := n.mustAdd(t), n.mustAdd(t)
	pods := []*pod{p, q}
	done := converse(t, p, q)
	client := agentapi.NewClient(n.socket())
	pair := func(agent, plugin string) {
		t.Helper()
		what := fmt.Sprintf("agent of %s, plugin of %s", agent, plugin)
		had, err := client.Attachments(context.Background())
		check(t, err)
		use("netcraq-cni", plugin)
		n.kill()
		use("netcraq-agent", agent)
		began := time.Now()
		n.start()
		took := time.Since(began)
		has, err := client.Attachments(context.Background())
		check(t, err)
		if fmt.Sprint(has) != fmt.Sprint(had) {
			t.Errorf("%s: attachments before:\n%v\nafter:\n%v", what, had, has)
		}
		for _, x := range pods {
			if err := n.check(t, l, x); err != nil {
				t.Errorf("%s: CHECK of a pod that was there: %v", what, err)
			}
		}
		r, gone := n.mustAdd(t), n.mustAdd(t)
		if err := talk(t, p.space, r.space, netip.AddrPortFrom(r.ip, 8080)); err != nil {
			t.Errorf("%s: pods of both do not reach each other: %v", what, err)
		}
		check(t, n.del(t, l, gone))
		pods = append(pods, r)
		if len(pods) > 3 { // this pod was made by an earlier combination
			check(t, n.del(t, l, pods[2]))
			pods = append(pods[:2:2], pods[3:]...)
		}
		t.Logf("%s: ready after %v", what, took.Round(time.Millisecond))
	}
	pair("before", "now")
	pair("now", "now")
	pair("now", "before")
	pair("before", "before")
	pair("now", "now")
	pair("before", "now")
	rounds, longest := done()
	t.Logf("%d round trips; the longest took %v", rounds, longest)
	if rounds < 100 || longest > 5*time.Second {
		t.Errorf("%d round trips, the longest %v: pods notice", rounds, longest)
	}
	use("netcraq-agent", "now")
	n.kill()
	n.start()
	for _, x := range pods {
		check(t, n.del(t, l, x))
	}
	n.expectNothingLeft(t)
}
