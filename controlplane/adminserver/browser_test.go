package adminserver

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// browse opens a page in a headless Chromium. It returns a context for chromedp actions, and a
// function for the browser's console messages. Without a Chromium the test is skipped.
func browse(t *testing.T, address string) (ctx context.Context, complaints func() []string) {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("skipped: no Chromium on PATH (Debian's package chromium)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1200, 1000))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	var mu sync.Mutex
	var said []string
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return // the browser has ended
			}
			mu.Lock()
			said = append(said, m.String())
			mu.Unlock()
		}
	}()
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatal(err)
	}
	return ctx, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(said) }
}

// look returns the value of a JavaScript expression in the page.
func look[T any](ctx context.Context, t *testing.T, expression string) T {
	t.Helper()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPage tests the page in a real browser. It checks the page's contents, and that the page
// follows changes. Other people choose the names of keys, so they must appear as text and not as
// HTML.
func TestPage(t *testing.T) {
	f := func(x float64) *float64 { return &x }
	const nasty = `/<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>\xff`
	const short = `/<img src=x onerror="document.ti…le='taken'</script>\xff`
	b := &backend{events: []admin.Event{{ID: 1, Type: "chain.ready", Chain: "main", Time: time.Now(),
		Message: "all serve"}}, more: make(chan struct{})}
	p := &places{shown: admin.Placement{
		Heat: admin.PlacementHeat{Prometheus: "http://127.0.0.1:9090", Window: "1m", ReadsPerSecond: f(1234.5),
			HitRatio: f(.876), NetworkMedianSeconds: f(42e-6), EtcdMedianSeconds: f(.0012)},
		Placed: []admin.PlacementKey{{Key: nasty, Chain: "main", Reads: f(500), Writes: f(1), Since: time.Now(),
			Code: "serves", Reason: "score 497/s"}},
		Others: []admin.PlacementKey{{Key: "/cold", Reads: f(.1), Writes: f(0), Code: "cold", Reason: "score 0.10/s: worth a slot from 1.00/s"}},
	}}
	s := httptest.NewServer(Handler(b, p))
	defer s.Close()
	defer s.CloseClientConnections()
	ctx, complaints := browse(t, s.URL)
	text := func() string { return look[string](ctx, t, "document.body.innerText") }
	shows := func(wants ...string) {
		t.Helper()
		for _, want := range wants {
			poll.Until(t, 15*time.Second, fmt.Sprintf("the page shows %q", want), func() bool { return strings.Contains(text(), want) },
				text, func() string { return fmt.Sprintf("%q", complaints()) })
		}
	}
	shows("live, ", "main", "chain.ready", "all serve", short, "500", "score 497/s", "/cold", "worth a slot", "1235", "87.6 %", "42 µs", "1.2 ms", "http://127.0.0.1:9090")

	if title := look[string](ctx, t, "document.querySelector('#placed .long').title"); title != nasty {
		t.Errorf("the whole key is %q", title)
	}

	p.mu.Lock()
	p.shown.Placed = append(p.shown.Placed, admin.PlacementKey{Key: "/came/later", Chain: "main", Reads: f(3),
		Since: time.Now(), Code: "serves"})
	p.shown.Heat.Error = "Prometheus does not answer"
	p.mu.Unlock()
	b.mu.Lock()
	b.events = append(b.events, admin.Event{ID: 2, Type: "chain.failover", Switch: "s2", Chain: "main", Time: time.Now(), Message: "it is out of reach"})
	close(b.more)
	b.more = make(chan struct{})
	b.mu.Unlock()
	shows("/came/later", "chain.failover", "s2 main", "Nothing moves for its heat: Prometheus does not answer")
	if got := text(); strings.Count(got, "chain.ready") != 1 {
		t.Errorf("an event is shown more than once:\n%s", got)
	}
	if title := look[string](ctx, t, "document.title"); title != "NetCRAQ" {
		t.Errorf("a key was run as a program: the title is %q", title)
	}
	for _, r := range look[[]string](ctx, t, "performance.getEntriesByType('resource').map((e) => e.name)") {
		if !strings.HasPrefix(r, s.URL+"/") && !strings.HasPrefix(r, "data:") {
			t.Errorf("the page asked for %s", r)
		}
	}
	if said := complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}

	b.mu.Lock()
	b.err = admin.Errorf(admin.CodeUnavailable, "it is starting")
	b.mu.Unlock()
	shows("the controller does not answer: it is starting")
}

// TestPageWithoutPrometheus: the page leaves out data that only Prometheus has, and says what is
// missing. The data appears with the first answer of a Prometheus.
func TestPageWithoutPrometheus(t *testing.T) {
	p := &places{shown: admin.Placement{Heat: admin.PlacementHeat{Error: "no Prometheus was given"},
		Placed: []admin.PlacementKey{{Key: "/pinned", Chain: "main", Since: time.Now(), Code: "serves", Reason: "pinned"}},
		Others: []admin.PlacementKey{{Key: "/cold", Reason: "excluded"}}}}
	s := httptest.NewServer(Handler(&backend{more: make(chan struct{})}, p))
	defer s.Close()
	defer s.CloseClientConnections()
	ctx, complaints := browse(t, s.URL)
	text := func() string { return look[string](ctx, t, "document.querySelector('main').innerText") }
	until := func(what string, has func(string) bool) {
		t.Helper()
		poll.Until(t, 15*time.Second, what, func() bool { return has(text()) }, text,
			func() string { return fmt.Sprintf("%q", complaints()) })
	}
	until("the keys", func(said string) bool { return strings.Contains(said, "/pinned") && strings.Contains(said, "/cold") })
	until("plots without those of Prometheus", func(said string) bool {
		return strings.Contains(said, "Queries a second") && !strings.Contains(said, "Latency, median")
	})
	said := strings.ToLower(text())
	if !strings.Contains(said, "the controller has no prometheus") || !strings.Contains(said, "--prometheus url") {
		t.Errorf("the page does not say what is missing:\n%s", said)
	}
	for _, unknown := range []string{"?", "reads/s", "writes/s", "median",
		"answered by the network", "undefined", "nan"} {
		if strings.Contains(said, unknown) {
			t.Errorf("the page shows %q:\n%s", unknown, said)
		}
	}
	f := func(x float64) *float64 { return &x }
	p.mu.Lock()
	p.shown.Heat = admin.PlacementHeat{Prometheus: "http://127.0.0.1:9090", Window: "1m", HitRatio: f(.876)}
	p.shown.Placed[0].Reads = f(500)
	p.mu.Unlock()
	until("what Prometheus knows", func(said string) bool {
		said = strings.ToLower(said)
		return strings.Contains(said, "87.6 %") && strings.Contains(said, "reads/s") && strings.Contains(said, "500") &&
			strings.Contains(said, "latency, median") && strings.Contains(said, "rates over 1m, from http://127.0.0.1:9090")
	})
}
