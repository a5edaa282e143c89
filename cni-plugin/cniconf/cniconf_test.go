package cniconf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// TestWrite checks that a runtime's own library can read the list, and that writing the same list
// again changes nothing.
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

// TestInstall replaces the project's own plugins while they run. Plugins of other projects must not
// be changed.
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
	plugins := Plugins{From: from, To: to, Own: "netcraq-cni"}
	for i, want := range []bool{true, false} {
		if changed, err := plugins.Install(); err != nil || changed != want {
			t.Fatalf("installing %d: %v, %v", i, changed, err)
		}
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
	check(t, os.Remove(filepath.Join(to, "portmap")))
	check(t, os.Chmod(filepath.Join(to, "netcraq-cni"), 0o644))
	only := plugins
	only.OnlyOwn = true
	if changed, err := only.Install(); err != nil || !changed || get(t, to, "portmap") != "" {
		t.Errorf("installing only its own: %v, %v", changed, err)
	}
	if s, err := os.Stat(filepath.Join(to, "netcraq-cni")); err != nil || s.Mode().Perm() != 0o755 {
		t.Errorf("a plugin that nobody can run: %v, %v", s.Mode(), err)
	}
	if changed, err := (Plugins{}).Install(); changed || err != nil {
		t.Errorf("no plugins: %v, %v", changed, err)
	}
	plugins.From = filepath.Join(from, "nothing")
	if _, err := plugins.Install(); err == nil {
		t.Error("there is no such folder")
	}
}

// typesOf returns the types of a list's plugins, as the runtime's library reads them.
func typesOf(t *testing.T, path string) string {
	t.Helper()
	l, err := libcni.NetworkConfFromFile(path)
	check(t, err)
	var types []string
	for _, p := range l.Plugins {
		types = append(types, p.Network.Type)
	}
	return strings.Join(types, " ")
}

// TestForeignEntries checks entries that a service mesh has put into the agent's own list. They
// must stay there, in their order, when the agent rewrites the list.
func TestForeignEntries(t *testing.T) {
	dir := t.TempDir()
	c := Config{Version: "1.0.0", Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, Socket: "/run/a.sock"}
	_, err := c.Write(dir)
	check(t, err)
	const mesh = `{"type": "istio-cni", "log_level": "a<b", "x": 1.50}`
	text := get(t, dir, File)
	own := text[strings.Index(text, "[")+1 : strings.LastIndex(text, "]")]
	with := func(plugins string) {
		t.Helper()
		put(t, dir, File, `{"plugins":[`+plugins+`],"name":"netcraq","cniVersion":"1.0.0"}`)
	}
	write := func(wantChange bool, want string) {
		t.Helper()
		changed, err := c.Write(dir)
		check(t, err)
		if got := typesOf(t, filepath.Join(dir, File)); got != want || changed != wantChange {
			t.Errorf("the list is %s (changed: %v), not %s", got, changed, want)
		}
	}
	with(own + "," + mesh + `,{"type":"linkerd-cni"}`)
	before := get(t, dir, File)
	write(false, "netcraq-cni portmap bandwidth istio-cni linkerd-cni")
	if get(t, dir, File) != before {
		t.Error("the text of a list with everything in it changes")
	}
	c.Subnets = []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")}
	write(true, "netcraq-cni portmap bandwidth istio-cni linkerd-cni")
	write(false, "netcraq-cni portmap bandwidth istio-cni linkerd-cni")
	if got := get(t, dir, File); !strings.Contains(got, "10.244.2.0/24") || strings.Contains(got, "10.244.1.0") ||
		!strings.Contains(got, "1.50") {
		t.Errorf("the list is\n%s", got)
	}
	with(`{"type":"netcraq-cni"},{"type":"tuning"},{"type":"bandwidth"},` + mesh + `,{"type":"bandwidth"}`)
	write(true, "netcraq-cni tuning portmap bandwidth istio-cni")
	with(mesh + `,{"type":"netcraq-cni"}`) // our plugin makes the interface, so it must come first
	write(true, "netcraq-cni istio-cni portmap bandwidth")
	for name, text := range map[string]string{"half": `{"cniVersion":"1.0.0","name":"netcraq","plugins":[`,
		"another network's": `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge"}]}`} {
		put(t, dir, File, text)
		t.Log(name)
		write(true, "netcraq-cni portmap bandwidth")
	}

	// This is the agent's other list, which has a copy of a file with one plugin.
	put(t, dir, "20-kube.conf", `{"cniVersion": "0.3.1", "name": "k", "type": "bridge"}`)
	chained := Chained{Dir: dir, Socket: "/run/a.sock"}
	file, _, err := chained.Apply()
	check(t, err)
	text = get(t, dir, ChainedFile)
	put(t, dir, ChainedFile, text[:strings.LastIndex(text, "]")]+","+mesh+"]}")
	put(t, dir, "20-kube.conf", `{"cniVersion": "0.3.1", "name": "k", "type": "ptp"}`)
	for range 2 {
		_, _, err = chained.Apply()
		check(t, err)
		if got := typesOf(t, file); got != "ptp istio-cni netcraq-cni" {
			t.Errorf("the copy has %s", got)
		}
	}
}

// TestKeepOwn checks that an agent that makes the pods' network rewrites its list and its plugins
// when they disappear. It must also make a removed folder again.
func TestKeepOwn(t *testing.T) {
	from, to, dir := t.TempDir(), filepath.Join(t.TempDir(), "bin"), filepath.Join(t.TempDir(), "net.d")
	put(t, from, "netcraq-cni", "plugin")
	put(t, from, "host-local", "plugin")
	c := Config{Version: "1.0.0", Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, Socket: "/run/a.sock"}
	ctx, cancel := context.WithCancel(t.Context())
	var said syncbuffer.Buffer
	done := make(chan error, 1)
	defer func() { // the deferred call runs before the folders are removed
		cancel()
		check(t, <-done)
	}()
	go func() {
		done <- c.Keep(ctx, dir, Plugins{From: from, To: to, Own: "netcraq-cni"}, slog.New(slog.NewTextHandler(&said, nil)))
	}()
	list := filepath.Join(dir, File)
	for _, path := range []string{list, filepath.Join(to, "netcraq-cni"), filepath.Join(to, "host-local")} {
		there := func() bool { _, err := os.Stat(path); return err == nil }
		poll.Until(t, 10*time.Second, path+" is there", there, said.String)
		check(t, os.Remove(path))
		poll.Until(t, 10*time.Second, path+" is there again", there, said.String)
	}
	// The removal is repeated, because Keep may write a plugin again while RemoveAll removes the
	// others.
	poll.Nil(t, 10*time.Second, "the folder is removed", func() error { return os.RemoveAll(to) }, said.String)
	poll.Until(t, 10*time.Second, "the folder is made again", func() bool {
		return get(t, to, "netcraq-cni") != ""
	}, said.String)
}

// TestFolderGone removes a folder whose path still leads to the removed folder, as a container's
// mount does. Keep must end, because nothing can be written there any more.
func TestFolderGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	check(t, os.Mkdir(dir, 0o755))
	mount, err := os.Open(dir)
	check(t, err)
	defer mount.Close()
	c := Config{Version: "1.0.0", Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, Socket: "/run/a.sock"}
	done := make(chan error, 1)
	go func() {
		done <- c.Keep(t.Context(), fmt.Sprintf("/proc/self/fd/%d", mount.Fd()), Plugins{}, slog.New(slog.DiscardHandler))
	}()
	poll.Until(t, 10*time.Second, "the list is there", func() bool { return get(t, dir, File) != "" })
	check(t, os.RemoveAll(dir))
	select {
	case err := <-done:
		if !errors.Is(err, ErrFolderGone) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

// TestKeepHalf checks that Keep does not replace a list that a service mesh has only half written,
// in place.
func TestKeepHalf(t *testing.T) {
	dir := t.TempDir()
	c := Config{Version: "1.0.0", Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, Socket: "/run/a.sock"}
	_, err := c.Write(dir)
	check(t, err)
	text := get(t, dir, File)
	last := strings.LastIndex(text, "]")
	put(t, dir, File, text[:last])
	soon := time.Now().Add(time.Hour) // far enough in the future for a slow machine
	check(t, os.Chtimes(filepath.Join(dir, File), soon, soon))
	var said syncbuffer.Buffer
	go func() { _ = c.Keep(t.Context(), dir, Plugins{}, slog.New(slog.NewTextHandler(&said, nil))) }()
	poll.Until(t, 10*time.Second, "it waits", func() bool {
		return strings.Contains(said.String(), errBeingWritten.Error())
	}, said.String)
	if got := get(t, dir, File); got != text[:last] {
		t.Errorf("the half is replaced by\n%s", got)
	}
	put(t, dir, File, strings.ReplaceAll(text[:last], "10.244.1.0/24", "10.244.9.0/24")+`,{"type":"istio-cni"}`+text[last:])
	poll.Until(t, 10*time.Second, "the list is this agent's, with the mesh", func() bool {
		got := get(t, dir, File)
		return strings.Contains(got, "10.244.1.0/24") && strings.Contains(got, "istio-cni")
	}, said.String)
}
