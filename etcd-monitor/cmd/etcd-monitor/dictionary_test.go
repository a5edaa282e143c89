package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/service"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// TestDictionary checks that dictionaries are trained from an export and stored in etcd for the
// gateways. Each dictionary has its own version.
func TestDictionary(t *testing.T) {
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	const export = "../../../experiments/data/etcd-export.json"
	for _, want := range []string{"dictionary 1: ", "dictionary 2: "} {
		var out, errs strings.Builder
		if code := run(t.Context(), []string{"dictionary", "train", export, "--size", "1024", "--endpoints",
			cluster.Endpoints()[0]}, &out, &errs); code != exitOK || !strings.HasPrefix(out.String(), want) {
			t.Fatalf("exit code %d, %q, %s; want %q", code, out.String(), errs.String(), want)
		}
	}
	library := slotcodec.NewLibrary(etcdtest.Client(t, cluster.Endpoints()...), placement.DefaultPrefix)
	if err := library.Load(t.Context()); err != nil || library.Codec().Newest() != 2 || !library.Codec().Knows(1) {
		t.Errorf("%v; the newest dictionary is %d, want 2", err, library.Codec().Newest())
	}
}

func TestDictionaryWithoutEtcd(t *testing.T) {
	var errs strings.Builder
	if code := run(t.Context(), []string{"dictionary", "train", "../../../experiments/data/etcd-export.json", "--endpoints", testport.Free(t)}, io.Discard, &errs); code != exitFailed ||
		!strings.Contains(errs.String(), "asking etcd at http://127.0.0.1:") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}

func TestDictionaryMistakes(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.json")
	if err := os.WriteFile(empty, []byte(`{"kvs":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"train --endpoints h:1":                     "accepts 1 arg(s)",
		"train x":                                   "--endpoints: give those of the etcd",
		"train /no/such/file --endpoints h:1":       "no such file",
		"train " + empty + " --endpoints h:1":       "has no keys",
		"train x --size 1 --endpoints h:1":          "from 256",
		"train x --endpoints h":                     "give URLs, or HOST:PORT",
		"train x --endpoints h:1 --prefix nonsense": "ends with a slash",
	} {
		var errs strings.Builder
		if code := run(t.Context(), append([]string{"dictionary"}, strings.Fields(line)...), io.Discard,
			&errs); code != exitBadInput || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, %q; want %q", line, code, errs.String(), want)
		}
	}
}

// TestNewDictionary checks that a gateway uses a dictionary as soon as etcd has it.
func TestNewDictionary(t *testing.T) {
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	etcd := etcdtest.Client(t, cluster.Endpoints()...)
	library := slotcodec.NewLibrary(etcd, placement.DefaultPrefix)
	ctx, cancel := context.WithCancel(t.Context())
	loaded, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		service.FollowDictionaries(ctx, etcd, library, loaded, slog.New(slog.DiscardHandler))
	}()
	defer func() { cancel(); <-done }()
	<-loaded
	for _, want := range []uint32{1, 2} {
		code := run(t.Context(), []string{"dictionary", "train", "../../../experiments/data/etcd-export.json", "--size", "1024", "--endpoints", cluster.Endpoints()[0]}, io.Discard, io.Discard)
		if code != exitOK {
			t.Fatalf("exit code %d", code)
		}
		poll.Until(t, 15*time.Second, fmt.Sprintf("the newest dictionary is %d", want), func() bool {
			return library.Codec().Newest() == want
		})
	}
}
