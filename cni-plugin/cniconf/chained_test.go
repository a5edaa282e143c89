package cniconf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

var behind = Chained{Socket: "/run/netcraq/agent.sock"}

// lists has plugin lists in the form in which other plugins write them.
var lists = map[string]string{
	"flannel": `{
  "name": "cbr0",
  "cniVersion": "0.3.1",
  "plugins": [
    {
      "type": "flannel",
      "delegate": {
        "hairpinMode": true,
        "isDefaultGateway": true
      }
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      }
    }
  ]
}
`,
	"cilium": `
{
  "cniVersion": "0.3.1",
  "name": "cilium",
  "plugins": [
    {
       "type": "cilium-cni",
       "enable-debug": false,
       "log-file": "/var/run/cilium/cilium-cni.log"
    }
  ]
}`,
	"one line":        `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"bridge","ipam":{"ranges":[[{"subnet":"10.0.0.0/24"}]]}}]}`,
	"tabs and DOS":    "{\r\n\t\"cniVersion\": \"1.1.0\",\r\n\t\"plugins\": [\r\n\t\t{\"type\": \"ptp\", \"mtu\": 1.5e3}\r\n\t],\r\n\t\"name\": \"\\u0061\", \"x\": {\"plugins\": [{\"type\": \"netcraq-cni\"}]}\r\n}\r\n",
	"no line's space": "{\"cniVersion\":\"0.4.0\",\"name\":\"b\",\"plugins\":[\n{\"type\":\"a\"}\n,{\"type\":\"b\"}\n]}",
}

// TestAddAndRemove checks that an entry is inserted once, after all others, and that its removal
// restores the text byte for byte. The runtime's library must accept the list.
func TestAddAndRemove(t *testing.T) {
	for name, text := range lists {
		with, err := add([]byte(text), behind.entry())
		check(t, err)
		l, err := libcni.NetworkConfFromBytes(with)
		check(t, err)
		was, err := libcni.NetworkConfFromBytes([]byte(text))
		check(t, err)
		if len(l.Plugins) != len(was.Plugins)+1 || l.Plugins[len(l.Plugins)-1].Network.Type != "netcraq-cni" {
			t.Errorf("%s: %s", name, with)
		}
		again, err := add(with, behind.entry())
		check(t, err)
		if !bytes.Equal(with, again) {
			t.Errorf("%s: a second time it is\n%s\nand was\n%s", name, again, with)
		}
		moved, err := add(with, Chained{Socket: "/elsewhere"}.entry())
		check(t, err)
		if n := strings.Count(string(moved), `{"type":"netcraq-cni",`); n != 1 || !strings.Contains(string(moved), "/elsewhere") {
			t.Errorf("%s: with another socket it is %s", name, moved)
		}
		for _, b := range [][]byte{with, moved, []byte(text)} {
			out, err := remove(b)
			check(t, err)
			if string(out) != text {
				t.Errorf("%s: without it is\n%q\nand was\n%q", name, out, text)
			}
		}
	}
	// Another program may have put the entry at any place, and more than once.
	entry := string(behind.entry())
	for _, plugins := range []string{entry + `,{"type":"a"}`, `{"type":"a"},` + entry + `, {"type":"b"}`, entry + `,` + entry + `,{"type":"a"},` + entry,
		`{"type":"a"}, {"type":"netcraq-cni","chained":true,"x":1},{"type":"b"} ,` + entry} {
		with, err := add([]byte(`{"cniVersion":"1.0.0","name":"a","plugins":[`+plugins+`]}`), behind.entry())
		check(t, err)
		l, err := libcni.NetworkConfFromBytes(with)
		check(t, err)
		var types []string
		for _, p := range l.Plugins {
			types = append(types, p.Network.Type)
		}
		if got := strings.Join(types, " "); strings.Count(got, "netcraq-cni") != 1 || !strings.HasSuffix(got, " netcraq-cni") || types[0] != "a" {
			t.Errorf("%s became %s", plugins, got)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "half": `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"a"}`, "no plugins": `{"cniVersion":"1.0.0","name":"a","plugins":[]}`,
		"a plugin": `{"cniVersion":"1.0.0","name":"a","type":"b"}`, "old": `{"cniVersion":"0.2.0","name":"a","plugins":[{"type":"a"}]}`,
		"only ours": `{"cniVersion":"1.0.0","name":"a","plugins":[` + entry + `]}`, "twice": `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"a"}],"plugins":[{"type":"a"}]}`,
		"another case": `{"cniVersion":"1.0.0","name":"a","Plugins":[{"type":"a"}]}`, "more behind it": `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"a"}]} {}`,
		"null": `null`, "list": `[]`, "a plugin that is none": `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"a"}, 7]}`,
	} {
		if out, err := add([]byte(text), behind.entry()); err == nil {
			t.Errorf("%s is taken: %s", name, out)
		}
	}
}

func FuzzAddAndRemove(f *testing.F) {
	for _, text := range lists {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		with, err := add(text, behind.entry())
		if err != nil {
			return
		}
		if !json.Valid(with) {
			t.Fatalf("%q became %q", text, with)
		}
		without, err := remove(with)
		check(t, err)
		clean, err := remove(text)
		check(t, err)
		if !bytes.Equal(without, clean) {
			t.Fatalf("%q: without it is %q", text, without)
		}
	})
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640))
}

func get(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	check(t, err)
	return string(b)
}

// TestChain checks that only the file that a runtime uses has the entry, whichever files come and
// go. Unchain must restore all files.
func TestChain(t *testing.T) {
	c := behind
	c.Dir = filepath.Join(t.TempDir(), "net.d")
	if _, changed, err := c.Apply(); !errors.Is(err, ErrNoList) || changed {
		t.Errorf("no folder: %v", err)
	}
	check(t, os.MkdirAll(c.Dir, 0o755))
	put(t, c.Dir, File, "ours, of before")
	put(t, c.Dir, "README", "no configuration")
	put(t, c.Dir, ".10-hidden.conflist.123", "half")
	if _, changed, err := c.Apply(); !errors.Is(err, ErrNoList) || !changed || get(t, c.Dir, File) != "" {
		t.Errorf("only our own list: %v, %v", changed, err)
	}
	has := func(name string) bool { return strings.Contains(get(t, c.Dir, name), string(c.entry())) }
	apply := func(want string, wantChange bool) {
		t.Helper()
		file, changed, err := c.Apply()
		check(t, err)
		if filepath.Base(file) != want || changed != wantChange || !has(want) {
			t.Errorf("it is in %s (changed: %v), not in %s:\n%s", file, changed, want, get(t, c.Dir, want))
		}
	}
	put(t, c.Dir, "87-podman.conflist", lists["one line"])
	apply("87-podman.conflist", true)
	apply("87-podman.conflist", false)
	put(t, c.Dir, "10-flannel.conflist", lists["flannel"]) // a runtime uses this file from here on
	apply("10-flannel.conflist", true)
	if get(t, c.Dir, "87-podman.conflist") != lists["one line"] {
		t.Error("the list that no runtime takes is not as it was")
	}
	put(t, c.Dir, "10-flannel.conflist", lists["cilium"]) // flannel writes its file again
	apply("10-flannel.conflist", true)
	if info, err := os.Stat(filepath.Join(c.Dir, "10-flannel.conflist")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's permissions: %v, %v", info, err)
	}
	const conf = "{\"cniVersion\": \"0.3.1\", \"name\": \"k\", \"type\": \"bridge\", \"x\": 1.50}\n"
	put(t, c.Dir, "05-kube.conf", conf)
	apply(ChainedFile, true)
	apply(ChainedFile, false)
	l, err := libcni.ConfListFromFile(filepath.Join(c.Dir, ChainedFile))
	check(t, err)
	if l.Name != "k" || l.CNIVersion != "0.3.1" || len(l.Plugins) != 2 || l.Plugins[0].Network.Type != "bridge" ||
		get(t, c.Dir, "05-kube.conf") != conf || has("10-flannel.conflist") {
		t.Errorf("behind one plugin: %s", get(t, c.Dir, ChainedFile))
	}
	put(t, c.Dir, "05-kube.conf", strings.Replace(conf, "bridge", "ptp", 1))
	apply(ChainedFile, true)
	check(t, os.Remove(filepath.Join(c.Dir, "05-kube.conf")))
	apply("10-flannel.conflist", true)
	if get(t, c.Dir, ChainedFile) != "" {
		t.Error("a list for a plugin that has gone is there")
	}
	put(t, c.Dir, "00-a.conf", conf)
	if _, _, err := c.Apply(); err == nil || !strings.Contains(err.Error(), "give it a later name") {
		t.Errorf("a plugin that sorts before our list: %v", err)
	}
	check(t, os.Remove(filepath.Join(c.Dir, "00-a.conf")))
	put(t, c.Dir, "05-half.conflist", `{"cniVersion":`)
	if _, _, err := c.Apply(); err == nil || !strings.Contains(err.Error(), "05-half.conflist") {
		t.Errorf("a list that is half written: %v", err)
	}
	check(t, Unchain(c.Dir))
	check(t, Unchain(c.Dir))
	for name, text := range map[string]string{"10-flannel.conflist": lists["cilium"], "87-podman.conflist": lists["one line"],
		"05-half.conflist": `{"cniVersion":`, "README": "no configuration", ChainedFile: "", File: ""} {
		if got := get(t, c.Dir, name); got != text {
			t.Errorf("after Unchain %s is %q and was %q", name, got, text)
		}
	}
	check(t, Unchain(filepath.Join(c.Dir, "nowhere")))
}

// TestChainThroughLink checks that the file may be a symbolic link to the other plugin's own file.
func TestChainThroughLink(t *testing.T) {
	c := behind
	c.Dir = t.TempDir()
	at := filepath.Join(t.TempDir(), "real")
	check(t, os.WriteFile(at, []byte(lists["flannel"]), 0o600))
	check(t, os.Symlink(at, filepath.Join(c.Dir, "10-flannel.conflist")))
	_, _, err := c.Apply()
	check(t, err)
	if info, err := os.Lstat(filepath.Join(c.Dir, "10-flannel.conflist")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is one no more: %v", err)
	}
	check(t, Unchain(c.Dir))
	if b, err := os.ReadFile(at); err != nil || string(b) != lists["flannel"] {
		t.Errorf("%s, %v", b, err)
	}
}

// TestKeep makes the other plugin come late and rewrite its file again and again. If a plugin keeps
// undoing the change, the log must name the plugin, and Keep must pause.
func TestKeep(t *testing.T) {
	c := behind
	c.Dir = filepath.Join(t.TempDir(), "net.d")
	ctx, cancel := context.WithCancel(t.Context())
	var said syncbuffer.Buffer
	done := make(chan error, 1)
	go func() { done <- c.Keep(ctx, Plugins{}, slog.New(slog.NewTextHandler(&said, nil))) }()
	logged := func(what string) {
		t.Helper()
		poll.Until(t, 10*time.Second, "it says "+what, func() bool { return strings.Contains(said.String(), what) }, said.String)
	}
	logged("waiting for the other plugin")
	for _, name := range []string{"flannel", "cilium", "flannel"} {
		put(t, c.Dir, "10-x.conflist", lists[name])
		poll.Until(t, 10*time.Second, "it is in the list", func() bool {
			return strings.Contains(get(t, c.Dir, "10-x.conflist"), string(c.entry()))
		}, said.String)
	}
	for range 2 * fightAfter {
		put(t, c.Dir, "10-x.conflist", lists["flannel"])
		if strings.Contains(said.String(), "cni.exclusive") {
			break
		}
		time.Sleep(2 * settle)
	}
	logged("cni.exclusive=false")
	cancel()
	check(t, <-done)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
