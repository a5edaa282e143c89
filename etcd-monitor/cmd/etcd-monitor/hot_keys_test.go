package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/forecast"
)

// TestHotKeys: a gateway before an etcd, without switches, tells which keys are hot, and what
// placing them would gain.
func TestHotKeys(t *testing.T) {
	line, _ := ready(t, "--data-dir", t.TempDir(), "--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "127.0.0.1:0")
	url := regexp.MustCompile(`http://\S+/metrics`).FindString(line)
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"hot-keys", "--metrics", url, "--over", "1s"}, &out, &errs); code != exitOK ||
		!strings.Contains(out.String(), "No single key was read") {
		t.Errorf("nobody reads: exit code %d, %s%s", code, &out, &errs)
	}

	c := etcdtest.Client(t, endpoint(t, line))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // nine reads of one key for one of others
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			key := "/hot"
			if i%10 == 0 {
				key = fmt.Sprintf("/cold/%d", i)
			}
			_, _ = c.Get(ctx, key)
		}
	}()
	defer func() { stop(); <-ended }()
	out.Reset()
	code := run(t.Context(), []string{"hot-keys", "--metrics", url, "--over", "2s", "--slots", "1", "--top", "1", "-o", "json"}, &out, &errs)
	var f forecast.Forecast
	if err := json.Unmarshal([]byte(out.String()), &f); code != exitOK || err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, &out, &errs)
	}
	if len(f.Keys) < 2 || f.Keys[0].Name != "/hot" || f.Keys[0].Verdict != forecast.Place || f.Placed != 1 ||
		f.Answered < .8 || f.Answered > 1 || f.EtcdSeconds <= 0 || f.ThenSeconds >= f.NowSeconds {
		t.Errorf("forecast %s", &out)
	}
	out.Reset()
	if code := run(t.Context(), []string{"hot-keys", "--metrics", url, "--over", "1s", "--slots", "1", "--top", "1"}, &out, &errs); code != exitOK ||
		!regexp.MustCompile(`(?s)READS/S +SHARE.* place +/hot\n.* more \(--top\).*1 of these keys would be placed:\n  \d+ % of the reads`).MatchString(out.String()) {
		t.Errorf("exit code %d: %s%s", code, &out, &errs)
	}
}

// TestHotKeysRefused: a mistake is named, with what to do.
func TestHotKeysRefused(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up 1") }))
	defer other.Close()
	for line, want := range map[string]string{
		"--over 1ms":       "give 1s to 1h",
		"--slots 0":        "give numbers from 1",
		"--switch-time 0s": "above 0",
		"--min-score 0":    "above 0",
		"-o yaml":          "give text or json",
	} {
		var errs strings.Builder
		if code := run(t.Context(), append([]string{"hot-keys"}, strings.Fields(line)...), io.Discard, &errs); code != exitBadInput ||
			!strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, %s; want %q", line, code, &errs, want)
		}
	}
	for url, want := range map[string]string{
		other.URL + "/metrics":       "not the metrics of an etcd-monitor",
		"http://127.0.0.1:1/metrics": "Does etcd-monitor run",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var errs strings.Builder
		if code := run(ctx, []string{"hot-keys", "--metrics", url}, io.Discard, &errs); code != exitFailed || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, %s; want %q", url, code, &errs, want)
		}
		cancel()
	}
}
