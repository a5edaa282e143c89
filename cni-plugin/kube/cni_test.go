package kube

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/cniconf"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestInstall restarts an agent that makes the pods' network. The agent must keep a service mesh's
// entry in its list. If the folder was emptied, it must write the list again.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, cniconf.File)
	read := func() string {
		b, err := os.ReadFile(list)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(b)
	}
	start := func(pods string) (end func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		self := podroutes.Node{PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)}}
		if err := (CNI{ConfDir: dir, Version: "1.0.0"}).install(ctx, self, "/run/a.sock", slog.Default(),
			func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		return cancel
	}
	end := start("10.244.1.0/24")
	end()
	text := read()
	last := strings.LastIndex(text, "]")
	if err := os.WriteFile(list, []byte(text[:last]+`,{"type": "istio-cni"}`+text[last:]), 0o600); err != nil {
		t.Fatal(err)
	}
	end = start("10.244.2.0/24")
	defer end()
	if got := read(); !strings.Contains(got, "istio-cni") || !strings.Contains(got, "10.244.2.0/24") {
		t.Errorf("after a start the list is\n%s", got)
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, 10*time.Second, "the list is there again", func() bool { return read() != "" }, read)
}
