package adminserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// busy returns a network of four switches in a line. The chain main has 1000 reads and 50 writes a
// second at each switch. The chain side, on two of the switches, is idle.
func busy(links [][2]int) *backend {
	start := time.Now()
	member := func(i int, role string) admin.Member {
		return admin.Member{Switch: fmt.Sprintf("s%d", i), Role: role, Ready: true, LeaseLive: true}
	}
	b := &backend{more: make(chan struct{}),
		events: []admin.Event{{ID: 1, Type: "chain.failover", Chain: "main", Switch: "s9",
			Time: start.Add(-time.Minute), Message: "s9 is out"}},
		chains: []admin.Chain{
			{Name: "main", ID: 1, Epoch: 7, Keys: 3, Slots: 100, Ready: true,
				Members: []admin.Member{member(1, "HEAD"), member(2, "REPLICA"), member(3, "REPLICA"), member(4, "TAIL")}},
			{Name: "side", ID: 2, Epoch: 2, Slots: 50, Ready: true, Length: 3,
				Members: []admin.Member{member(3, "HEAD"), member(2, "TAIL")},
				Missing: []admin.MissingMember{{Switch: "s1", Why: "it is not connected"}}},
		}}
	for i := range 4 {
		b.switches = append(b.switches, admin.Switch{Name: fmt.Sprintf("s%d", i+1), Connected: true, Ready: true,
			Ports: []admin.Port{{Number: 1, Trust: "host", LeadsTo: fmt.Sprintf("host h%d", i+1)}}})
	}
	for _, l := range links {
		for _, way := range [][2]int{l, {l[1], l[0]}} {
			s := &b.switches[way[0]-1]
			s.Ports = append(s.Ports, admin.Port{Number: uint32(len(s.Ports) + 1), Trust: "fabric",
				LeadsTo: fmt.Sprintf("switch s%d port 9", way[1])})
		}
	}
	b.counted = func(sw string) *admin.Counters {
		n := uint64(time.Since(start).Milliseconds())
		write := map[string]string{"s1": "write_assigned", "s4": "write_committed"}[sw]
		if write == "" {
			write = "write_stored"
		}
		return &admin.Counters{Switch: sw, Events: map[string]uint64{"read_clean": n, write: n / 20, "drop_ttl": 0},
			Slots: []admin.SlotCounters{{KeyID: 1 << 24, Writes: n / 40}, {Slot: 1, KeyID: 1<<24 | 1, Writes: n / 40},
				{KeyID: 2 << 24}}}
	}
	return b
}

// screenshot writes a picture of the page into the folder that NETCRAQ_SCREENSHOTS names.
func screenshot(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("NETCRAQ_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// width sets the window's width, and chooses light or dark mode.
func width(ctx context.Context, t *testing.T, pixels int64, scheme string) {
	t.Helper()
	_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: pixels, Height: 900, DeviceScaleFactor: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDrawing opens the page in a real browser, at two widths, light and dark. It checks switches
// with their roles and rates, links, chains and plots. The keyboard suffices for everything, and
// nothing is wider than the window.
func TestDrawing(t *testing.T) {
	f := func(x float64) *float64 { return &x }
	b := busy([][2]int{{1, 2}, {2, 3}, {3, 4}})
	long := "/registry/services/endpoints/" + strings.Repeat("a-long-namespace-", 6) + "/the-service-at-the-end"
	p := &places{shown: admin.Placement{
		Heat: admin.PlacementHeat{Prometheus: "http://127.0.0.1:9090", Window: "1m", ReadsPerSecond: f(4000),
			HitRatio: f(.9), NetworkMedianSeconds: f(42e-6), EtcdMedianSeconds: f(.0012)},
		Placed: []admin.PlacementKey{{Key: long, Chain: "main", Reads: f(500), Writes: f(1), Since: time.Now(), Reason: "score 497/s"},
			{Key: "/registry/leases/kube-system/kube-scheduler", Chain: "main", Reads: f(300), Writes: f(.5), Since: time.Now(), Reason: "pinned"}},
		Others: []admin.PlacementKey{{Key: "/registry/events/default/" + strings.Repeat("x", 80), Reads: f(3), Reason: "excluded by a rule"}},
	}}
	s := httptest.NewServer(Handler(b, p))
	defer s.Close()
	defer s.CloseClientConnections()
	ctx, complaints := browse(t, s.URL)
	eval := func(js string) string { return look[string](ctx, t, js) }
	until := func(what, js string) {
		t.Helper()
		poll.Until(t, 15*time.Second, what, func() bool { return look[bool](ctx, t, js) }, func() string {
			return eval("document.querySelector('#network').textContent + document.body.innerText")
		}, func() string { return fmt.Sprintf("%q", complaints()) })
	}
	until("a chain that is short says so", "document.body.innerText.includes('short: 2 of 3 members; s1: it is not connected')")
	for _, c := range []struct {
		pixels int64
		scheme string
	}{{1280, "light"}, {1280, "dark"}, {390, "light"}, {390, "dark"}} {
		width(ctx, t, c.pixels, c.scheme)
		until("the drawing has the window's width", fmt.Sprintf("(w => w > %d && w <= %d)(Number(document.querySelector('#network svg')?.getAttribute('width')))", c.pixels*4/5, c.pixels))
		until("s2 has its rates", "/s2: ready; REPLICA of main; TAIL of side; a second: (9[0-9][0-9]|1[01][0-9][0-9]) reads answered, .* 1 host/.test(document.querySelector('[data-switch=s2]').getAttribute('aria-label'))")
		until("the way to the tail has the writes", "[...document.querySelectorAll('#network g.c0 > text')].some((e) => /^[45][0-9] w\\/s$/.test(e.textContent))")
		until("the plots have lines", "document.querySelectorAll('#plots .series').length === 5 && document.querySelector('#plot-hits output').textContent === '90 %'")
		if n := eval("String(document.querySelectorAll('.link').length) + ' ' + document.querySelectorAll('.chain-way').length + ' ' + document.querySelectorAll('.switch').length"); n != "3 4 4" {
			t.Errorf("at %d: links, ways of chains, switches: %s", c.pixels, n)
		}
		if wide := look[int](ctx, t, "document.documentElement.scrollWidth"); int64(wide) > c.pixels {
			t.Errorf("at %d the page is %d wide", c.pixels, wide)
		}
		// No two switches overlap, and no switch is outside the drawing.
		if bad := eval(`(() => { const all = [...document.querySelectorAll('.switch')].map((e) => e.getBoundingClientRect()), out = document.querySelector('#network').getBoundingClientRect();
			return all.some((a, i) => a.left < out.left - 1 || a.right > out.right + 1 || all.some((b, j) => i < j && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)) ? JSON.stringify(all) : ''; })()`); bad != "" {
			t.Errorf("at %d switches lie over each other, or outside: %s", c.pixels, bad)
		}
		screenshot(ctx, t, fmt.Sprintf("line-%d-%s", c.pixels, c.scheme))
	}
	if out := eval("document.querySelector('#plot-failovers output').textContent"); out != "1" {
		t.Errorf("failovers of before the page was opened: %s", out)
	}

	// The keyboard alone reaches the first switch, the next one, a plot, and an earlier moment in
	// the plot.
	tab := func(js string) {
		t.Helper()
		for range 30 {
			if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.Tab)); err != nil {
				t.Fatal(err)
			}
			if look[bool](ctx, t, js) {
				return
			}
		}
		t.Fatalf("Tab never comes to %s", js)
	}
	tab("document.activeElement.dataset.switch === 's1'")
	until("s1 is told of", "document.querySelector('#told').textContent.startsWith('s1: ready; HEAD of main')")
	if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.ArrowRight)); err != nil {
		t.Fatal(err)
	}
	until("s2 is told of", "document.querySelector('#told').textContent.startsWith('s2: ')")
	time.Sleep(2500 * time.Millisecond) // the numbers must change meanwhile, and the focus must stay
	if at := eval("document.activeElement.dataset.switch"); at != "s2" {
		t.Errorf("the focus went from s2 to %s", at)
	}
	tab("document.activeElement.id === 'plot-latency'")
	if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.Home)); err != nil {
		t.Fatal(err)
	}
	until("the first sample is told", "/: network 42 µs, etcd 1.2 ms$/.test(document.querySelector('#plot-latency output').textContent)")
	if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.Escape)); err != nil {
		t.Fatal(err)
	}
	until("what is now is told", "document.querySelector('#plot-latency output').textContent === 'network 42 µs, etcd 1.2 ms'")

	// A long key is shortened. Enter shows the whole key, and copying copies the whole key.
	tab("document.activeElement.title === " + fmt.Sprintf("%q", long))
	if text := eval("document.activeElement.textContent"); len([]rune(text)) != 56 || !strings.HasSuffix(text, "the-service-at-the-end") || !strings.Contains(text, "…") {
		t.Errorf("shortened it is %q", text)
	}
	if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
		t.Fatal(err)
	}
	until("the key is whole", "document.activeElement.textContent === document.activeElement.title")
	tab("document.activeElement.className === 'copy'")
	if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
		t.Fatal(err)
	}
	until("it is copied", "document.activeElement.textContent === 'copied'")

	// The longest label of a scale stays inside its plot.
	p.mu.Lock()
	p.shown.Heat.EtcdMedianSeconds = f(.15)
	p.mu.Unlock()
	scale := "[...document.querySelectorAll('#plot-latency text')]"
	until("the scale goes to 200 ms", scale+".some((e) => e.textContent === '200.0 ms')")
	if cut := eval(scale + ".filter((e) => e.getBBox().x < 0).map((e) => e.textContent).join()"); cut != "" {
		t.Errorf("the plot cuts off %s", cut)
	}

	// The page describes a lost switch in words, and not only by colour.
	b.mu.Lock()
	b.switches[3].Connected = false
	b.mu.Unlock()
	until("s4 is said to be lost", "document.querySelector('[data-switch=s4]').classList.contains('out') && document.querySelector('[data-switch=s4] .state').textContent === 'not connected'")
	if said := complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

// TestLayouts draws other networks: a full mesh, and a leaf-spine network.
func TestLayouts(t *testing.T) {
	for name, links := range map[string][][2]int{
		"mesh":       {{1, 2}, {1, 3}, {1, 4}, {2, 3}, {2, 4}, {3, 4}},
		"leaf-spine": {{1, 3}, {1, 4}, {2, 3}, {2, 4}},
		"no-links":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := busy(links)
			if name == "leaf-spine" {
				for i := range 2 {
					b.switches[i].Ports = b.switches[i].Ports[1:]
				}
			}
			s := httptest.NewServer(Handler(b, nil))
			defer s.Close()
			defer s.CloseClientConnections()
			ctx, complaints := browse(t, s.URL)
			for _, pixels := range []int64{1280, 390} {
				width(ctx, t, pixels, "light")
				poll.Until(t, 15*time.Second, "all is drawn inside of the window", func() bool {
					return look[bool](ctx, t, fmt.Sprintf(`(() => { const all = [...document.querySelectorAll('.switch')].map((e) => e.getBoundingClientRect());
						return all.length === 4 && document.querySelectorAll('.link').length === %d && Number(document.querySelector('#network svg').getAttribute('width')) <= %d &&
						all.every((a, i) => a.left >= 0 && a.right <= %d && all.every((b, j) => i >= j || !(a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom))); })()`,
						len(links), pixels, pixels))
				}, func() string {
					return look[string](ctx, t, `innerWidth + ' ' + document.documentElement.scrollWidth + ' ' + document.querySelector('#network').outerHTML`) + fmt.Sprintf("%q", complaints())
				})
				screenshot(ctx, t, fmt.Sprintf("%s-%d", name, pixels))
			}
			// If there is no placement, the page requests it only once, and not each second.
			if said := complaints(); len(said) > 1 || len(said) == 1 && !strings.Contains(said[0], "412") {
				t.Errorf("the browser says %q", said)
			}
		})
	}
}

// TestCountersByChain: the page shows sums of counters over a chain's slots.
func TestCountersByChain(t *testing.T) {
	b := busy(nil)
	s := httptest.NewServer(Handler(b, nil))
	defer s.Close()
	b.counted = func(sw string) *admin.Counters {
		return &admin.Counters{Switch: sw, Slots: []admin.SlotCounters{{KeyID: 2<<24 | 7, Reads: 5},
			{KeyID: 1 << 24, Reads: 1, Writes: 2},
			{KeyID: 2 << 24, Reads: 6, Forwards: 3, Writes: 4}}}
	}
	answer := get(t, s.URL+"/v1/switches/s1/counters?slots=0")
	if want := `"slots":null,"chains":[{"id":1,"reads":1,"forwards":0,"writes":2},{"id":2,"reads":11,"forwards":3,"writes":4}]`; !strings.Contains(answer, want) {
		t.Errorf("it answers %s, want %s", answer, want)
	}
	if answer = get(t, s.URL+"/v1/switches/s1/counters"); strings.Contains(answer, "chains") || strings.Count(answer, "keyId") != 3 {
		t.Errorf("all of it is %s", answer)
	}
}

// get returns the answer to a GET.
func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
