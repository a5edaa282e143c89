package cniconf

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// TestWrite: a runtime's own library reads the list, and a second writing of the same changes
// nothing.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	c := Config{Version: "1.1.0", Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, Socket: "/run/netcraq/agent.sock", MTU: 1400}
	for i, want := range []bool{true, false} {
		if changed, err := c.Write(dir); err != nil || changed != want {
			t.Fatalf("writing %d: %v, %v", i, changed, err)
		}
	}
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, p := range list.Plugins {
		types = append(types, p.Network.Type)
	}
	if got := strings.Join(types, " "); list.Name != Network || list.CNIVersion != "1.1.0" ||
		got != "netcraq-cni portmap bandwidth" || !strings.Contains(string(list.Bytes), `"10.244.1.0/24"`) {
		t.Errorf("%s", list.Bytes)
	}
	c.Subnets = nil
	if _, err := c.Write(dir); err == nil {
		t.Error("a list without addresses was written")
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("removing it again: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestInstall: its own plugins are replaced while they run; another's are left.
func TestInstall(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "bin")
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(from, "netcraq-cni", "new")
	write(from, "portmap", "ours")
	write(from, "host-local", "ours")
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	write(to, "netcraq-cni", "old")
	write(to, "portmap", "theirs")
	running, err := os.Open(filepath.Join(to, "netcraq-cni"))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if err := Install(from, to, "netcraq-cni"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"netcraq-cni": "new", "portmap": "theirs", "host-local": "ours"} {
		b, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if s, err := os.Stat(filepath.Join(to, "host-local")); err != nil || s.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", s.Mode(), err)
	}
	b := make([]byte, 3)
	if _, err := running.Read(b); err != nil || string(b) != "old" {
		t.Errorf("the running one reads %q, %v", b, err)
	}
	if left, _ := filepath.Glob(filepath.Join(to, ".netcraq-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := Install(filepath.Join(from, "nothing"), to); err == nil {
		t.Error("there is no such folder")
	}
}
