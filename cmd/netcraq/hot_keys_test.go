package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/netcraq/netcraq/controlplane/placement/forecast"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

// TestHotKeys reads the metrics of a gateway that forwards all requests to etcd.
func TestHotKeys(t *testing.T) {
	m, registry := hotkeys.NewMetrics(hotkeys.Bounds{}, nil), prometheus.NewRegistry()
	registry.MustRegister(m)
	gateway := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer gateway.Close()
	if out, errs, code := here(t, "hot-keys", "--metrics", gateway.URL, "--over", "1s"); code != 0 ||
		!regexp.MustCompile("No single key was read in 1 s").MatchString(out) {
		t.Errorf("nobody reads: exit code %d, %s%s", code, out, errs)
	}
	read := func(key string) {
		m.Keys.Read([]byte(key))
		m.Forwarded("not placed")
		m.Etcd("get", time.Millisecond)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { // one key gets nine times as many reads as each other key
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			for range 9 {
				read("/hot")
			}
			read(fmt.Sprintf("/cold/%d", i))
		}
	}()
	defer func() { close(stop); <-ended }()
	out, errs, code := here(t, "hot-keys", "--metrics", gateway.URL, "--over", "1s", "--slots", "1", "-o", "json")
	var f forecast.Forecast
	if err := json.Unmarshal([]byte(out), &f); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	if len(f.Keys) < 2 || f.Keys[0].Name != "/hot" || f.Keys[0].Verdict != forecast.Place || f.Placed != 1 ||
		f.Answered < .8 || f.Answered > 1 || f.EtcdSeconds <= 0 || f.ThenSeconds >= f.NowSeconds {
		t.Errorf("forecast %s", out)
	}
	want := regexp.MustCompile(`(?s)READS/S +SHARE.* place +/hot\n.* more \(--top\).*1 of these keys would be placed:\n  \d+ % of the reads`)
	if out, errs, code := here(t, "hot-keys", "--metrics", gateway.URL, "--over", "1s", "--slots", "1", "--top", "1"); code != 0 ||
		!want.MatchString(out) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// TestHotKeysRefused checks that the error names the mistake and the remedy.
func TestHotKeysRefused(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up 1") }))
	defer other.Close()
	for _, c := range []struct {
		flag, value string
		code        int
		want        string
	}{
		{"--over", "1ms", 2, "pass 1s to 1h"},
		{"--slots", "0", 2, "pass numbers from 1"},
		{"--switch-time", "0s", 2, "above 0"},
		{"--min-score", "0", 2, "above 0"},
		{"-o", "yaml", 2, "want text or json"},
		{"--metrics", "http://a b", 2, "--metrics"},
		{"--metrics", other.URL, 1, "not the metrics of an etcd-monitor"},
		{"--metrics", "http://127.0.0.1:1/metrics", 1, "Start a gateway with etcd-monitor"},
		{"--metrics", "127.0.0.1:1", 1, "Start a gateway with etcd-monitor"},
	} {
		_, errs, code := here(t, "hot-keys", c.flag, c.value)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%s %s: exit code %d, %s; want %d, %q", c.flag, c.value, code, errs, c.code, c.want)
		}
	}
}
