package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// TestSealCommands checks that an operator can list the sealing keys by number, and replace them.
// The output must not contain secrets. Gateways notice a new key at once.
func TestSealCommands(t *testing.T) {
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	etcd := etcdtest.Client(t, cluster.Endpoints()...)
	command := func(args ...string) (string, string, int) {
		var out, errs strings.Builder
		code := run(t.Context(), append(append([]string{"seal"}, args...), "--endpoints", cluster.Endpoints()[0]), &out, &errs)
		return out.String(), errs.String(), code
	}
	for _, args := range [][]string{{"show"}, {"rotate"}} {
		if out, errs, code := command(args...); code != exitFailed || !strings.Contains(errs, "no gateway has been started with --controller") {
			t.Errorf("%v before there are any: %q, %q, exit code %d", args, out, errs, code)
		}
	}
	keys := seal.NewKeys(etcd, placement.DefaultPrefix)
	if err := keys.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keys.Follow(ctx, etcd, seal.DefaultAge, slog.New(slog.DiscardHandler))
	}()
	defer func() { cancel(); <-done }()
	first, _ := keys.Ring().Primary()
	out, errs, code := command("rotate")
	if code != exitOK || !regexp.MustCompile(`^key [0-9]+ is sealed with from now on; 2 open\n$`).MatchString(out) {
		t.Errorf("%q, %q, exit code %d", out, errs, code)
	}
	changed := func(n int) {
		t.Helper()
		poll.Until(t, 5*time.Second, fmt.Sprintf("a gateway knows %d keys", n), func() bool { return len(keys.Ring().Keys()) == n })
	}
	changed(2)
	if now, _ := keys.Ring().Primary(); now == first || !keys.Ring().Knows(first) {
		t.Errorf("it seals with %d; before that with %d", now, first)
	}
	if out, errs, code := command("show"); code != exitOK || !regexp.MustCompile(`^ *[0-9]+  \S+Z  opens\n *[0-9]+  \S+Z  opens and seals\n$`).MatchString(out) {
		t.Errorf("%q, %q, exit code %d", out, errs, code)
	}
	if out, errs, code := command("rotate", "--drop-old"); code != exitOK || !strings.HasSuffix(out, "; 1 open\n") {
		t.Errorf("%q, %q, exit code %d", out, errs, code)
	}
	changed(1)
}

func TestSealMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"show":                                    "--endpoints: give those of the etcd",
		"rotate":                                  "--endpoints: give those of the etcd",
		"rotate --endpoints h":                    "give URLs, or HOST:PORT",
		"rotate --endpoints h:1 --prefix x":       "ends with a slash",
		"rotate --endpoints h:1 --user somebody":  "give both, or neither",
		"rotate --endpoints h:1 --no-such-option": "unknown flag",
	} {
		var errs strings.Builder
		if code := run(t.Context(), append([]string{"seal"}, strings.Fields(line)...), io.Discard,
			&errs); code != exitBadInput || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, %q; want %q", line, code, errs.String(), want)
		}
	}
	var errs strings.Builder
	if code := run(t.Context(), []string{"seal", "rotate", "--endpoints", testport.Free(t)}, io.Discard,
		&errs); code != exitFailed || !strings.Contains(errs.String(), "etcd at http://127.0.0.1:") {
		t.Errorf("without etcd: exit code %d, %q", code, errs.String())
	}
}
