package placementcontroller

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func vector(samples ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}}`
}

func sample(key, value string) string {
	return fmt.Sprintf(`{"metric":{"key":%q},"value":[1700000000,%q]}`, key, value)
}

// TestPrometheusIsWrong: each failure of a Prometheus is an error that names the failure, within
// the time limit.
func TestPrometheusIsWrong(t *testing.T) {
	many := make([]string, Top+1)
	for i := range many {
		many[i] = sample(fmt.Sprint(i), "1")
	}
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want string
	}{
		"slow": {func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client has ended
			<-r.Context().Done()
		}, "did not answer within"},
		"broken":     {answer(500, "oops"), "500"},
		"not there":  {answer(404, "<html>not a Prometheus</html>"), "is it a Prometheus?"},
		"overloaded": {answer(503, `{"status":"error","errorType":"unavailable","error":"too many queries"}`), "503"},
		"refused":    {answer(422, `{"status":"error","errorType":"execution","error":"too many samples"}`), "too many samples"},
		"no JSON":    {answer(200, "hello"), "Prometheus at"},
		"cut off":    {answer(200, `{"status":"success","data":{"resultType":"vec`), "Prometheus at"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(`{"a":"`))
			for range maxAnswer / 1024 {
				w.Write(make([]byte, 1025))
			}
		}, "Prometheus at"},
		"no vector":     {answer(200, `{"status":"success","data":{"resultType":"scalar","result":[1700000000,"1"]}}`), "not with a vector"},
		"NaN":           {answer(200, vector(sample("/a", "1"), sample("/b", "NaN"))), "a rate of NaN cannot be"},
		"infinite":      {answer(200, vector(sample("/a", "+Inf"))), "a rate of +Inf cannot be"},
		"negative":      {answer(200, vector(sample("/a", "-1"))), "a rate of -1 cannot be"},
		"beyond belief": {answer(200, vector(sample("/a", "1e12"))), "a rate of 1e+12 cannot be"},
		"too many":      {answer(200, vector(many...)), "more than asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.h)
			defer s.Close()
			p, err := NewPrometheus(s.URL, 10*time.Second, 300*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			heat, err := p.Heat(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || heat != nil {
				t.Errorf("%v, %v; want an error that says %q", heat, err, c.want)
			}
			if d := time.Since(began); d > 5*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
	p, err := NewPrometheus("127.0.0.1:1", 10*time.Second, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Heat(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
	for _, wrong := range []string{"", "ftp://x", "http://", "::"} {
		if _, err := NewPrometheus(wrong, time.Minute, time.Second); err == nil {
			t.Errorf("%q is taken for a URL", wrong)
		}
	}
}

// TestPrometheusIsGone: without Prometheus, no placed key moves because of heat, and no key is
// added. Keys that must be removed for other reasons are removed.
func TestPrometheusIsGone(t *testing.T) {
	r := newRig(t, 1024, 2)
	var mode atomic.Value
	mode.Store("well")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		q.ParseForm()
		switch mode.Load() {
		case "slow":
			<-q.Context().Done()
		case "wrong":
			answer(200, vector(sample("/new", "1e12")))(w, q)
		case "empty":
			answer(200, vector())(w, q)
		default:
			if strings.Contains(q.Form.Get("query"), ReadsMetric) {
				answer(200, vector(sample("/a", "10"), sample(`bin\xff`, "10"), sample("/new", "1")))(w, q)
				return
			}
			answer(200, vector())(w, q)
		}
	}))
	defer s.Close()
	prom, err := NewPrometheus(s.URL, 10*time.Second, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	r.exist("/a", "bin\xff")
	r.load("/a", 10, "bin\xff", 10)
	p, err := New(Options{Network: r.nw, Source: prom, Etcd: r.etcd, Prefix: prefix, Limits: r.limits,
		Interval: 20 * time.Millisecond, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	r.p = p
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	r.placedNow("/a", "bin\xff")
	for _, m := range []string{"slow", "wrong", "empty"} {
		mode.Store(m)
		r.load("/a", 0, "bin\xff", 0)
		if m != "empty" {
			r.until(m+" is noticed", func() bool { show, _ := p.Show(ctx); return show.Heat.Error != "" })
		}
		r.stays(m)
		mode.Store("well")
		r.load("/a", 10, "bin\xff", 10)
		r.until("it is heard again", func() bool { show, _ := p.Show(ctx); return show.Heat.Error == "" })
	}
	s.CloseClientConnections()
	s.Close()
	r.until("it is gone", func() bool { show, _ := p.Show(ctx); return strings.Contains(show.Heat.Error, "connection refused") })
	r.stays("gone")
	if why, _ := p.Why(ctx, "/else"); why.Code != string(policy.Unknown) {
		t.Errorf("%+v", why)
	}
	if _, err := p.SetRule(ctx, admin.PlacementRule{Key: "/a", Choice: "exclude"}); err != nil {
		t.Fatal(err)
	}
	r.placedNow("bin\xff")
	if !r.nw.has("placement.source-down") || !r.nw.has("placement.source-up") {
		t.Errorf("%q", r.nw.events)
	}
}

// TestRealPrometheus: a Prometheus server scrapes counters and the source gets their rates.
func TestRealPrometheus(t *testing.T) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("skipped: prometheus is not on PATH (Debian's package of that name)")
	}
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{Name: ReadsMetric}, []string{KeyLabel})
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: WritesMetric}, []string{KeyLabel})
	registry := prometheus.NewRegistry()
	registry.MustRegister(reads, writes)
	exporter := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer exporter.Close()
	key := "bin\xff\"\\\n"
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				reads.WithLabelValues(placement.Printable("/hot")).Add(2)
				reads.WithLabelValues(placement.Printable(key)).Add(.5)
				writes.WithLabelValues(placement.Printable(key)).Add(.1)
			}
		}
	}()
	address := testport.Free(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nscrape_configs: [{job_name: gateways, static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(exporter.URL, "http://"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	p, err := NewPrometheus(address, 2*time.Second, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var heat map[string]policy.Heat
	poll.Until(t, 30*time.Second, "the rates are known", func() bool {
		heat, err = p.Heat(t.Context())
		return err == nil && math.Abs(heat["/hot"].Reads/200-1) < .3 && len(heat) == 2
	}, func() string { return fmt.Sprint(heat, err) })
	if ratio := heat[key].Reads / heat["/hot"].Reads; math.Abs(ratio/.25-1) > .3 ||
		math.Abs(heat[key].Writes/heat[key].Reads/.2-1) > .3 {
		t.Errorf("%v", heat)
	}
	if n, ok := p.Scalar(t.Context(), "count("+ReadsMetric+")"); !ok || n != 2 {
		t.Error(n, ok)
	}
	if _, ok := p.Scalar(t.Context(), "nothing_has_this_name"); ok {
		t.Error("nothing has a value")
	}
}

func TestMeter(t *testing.T) {
	m := newMeter(10 * time.Second)
	now := time.Unix(1000, 0)
	s := []string{"s1", "s2"}
	take := func(after time.Duration, sw string, reads, writes uint64) {
		m.take(now.Add(after), sw, []admin.SlotCounters{{KeyID: 7, Reads: reads, Writes: writes}})
	}
	known := func(after time.Duration, want bool, reads, writes float64) {
		t.Helper()
		h, ok := m.heat(now.Add(after), 7, s, 10*time.Second)
		if ok != want || math.Abs(h.Reads-reads) > .01 || math.Abs(h.Writes-writes) > .01 {
			t.Errorf("after %v: %+v, %v; want %v, %v, %v", after, h, ok, reads, writes, want)
		}
	}
	take(0, "s1", 1000, 100)
	take(0, "s2", 5000, 100)
	known(0, false, 0, 0) // a single reading gives no rate
	take(2*time.Second, "s1", 1020, 108)
	known(2*time.Second, false, 0, 0) // no rate, because the other switch's counters are missing
	take(2*time.Second, "s2", 5060, 108)
	known(2*time.Second, true, 10+30-2, 2) // 8 versions in 2 s are 2 writes a second, each with a read
	known(13*time.Second, false, 0, 0)     // no rate, because the readings are too old
	take(4*time.Second, "s1", 1040, 116)
	take(4*time.Second, "s2", 5120, 116)
	known(4*time.Second, true, 38, 2)
	take(6*time.Second, "s1", 20, 8) // the switch has counted 20 reads since a restart
	take(6*time.Second, "s2", 5180, 124)
	known(6*time.Second, true, 38, 2)
	take(8*time.Second, "s1", 20, 8) // no requests came for a moment, so the average falls slowly
	take(8*time.Second, "s2", 5180, 124)
	known(8*time.Second, true, 38*math.Exp(-.2), 2*math.Exp(-.2))
	m.forget(now.Add(time.Hour), time.Minute)
	if len(m.slots) != 0 {
		t.Error("it does not forget")
	}
}

// TestJudge: the verdict on a slot, given the key's state in etcd.
func TestJudge(t *testing.T) {
	has := func(rev int64) seen { return seen{Value: policy.Value{Known: true, Bytes: 1}, revision: rev} }
	gone := func(rev int64) seen { return seen{Value: policy.Value{Known: true, Absent: true}, revision: rev} }
	leased := seen{Value: policy.Value{Known: true, Lease: true}, revision: 5}
	ok := func(b []byte) admin.KeyState { return admin.KeyState{Status: "OK", Version: 7, Value: b} }
	for _, c := range []struct {
		slot admin.KeyState
		etcd seen
		want placement.Fault
	}{
		{ok(slot(slotcodec.Value, 5)), has(5), ""},
		// the key's state is older than the slot, because the watch lags behind
		{ok(slot(slotcodec.Value, 6)), has(5), ""},
		{ok(slot(slotcodec.Value, 4)), has(5), placement.Bypassed},
		{ok(slot(slotcodec.Value, 4)), gone(5), placement.Bypassed},
		{ok(slot(slotcodec.Value, 6)), gone(5), ""},
		{ok(slot(slotcodec.Value, 4)), seen{}, ""}, // the key's state in etcd is unknown
		{ok(slot(slotcodec.Absent, 4)), gone(5), ""},
		{ok(slot(slotcodec.Absent, 4)), has(5), placement.Bypassed},
		{ok(slot(slotcodec.Absent, 5)), has(5), ""},
		{ok(slot(slotcodec.Absent, 6)), has(5), ""},
		{ok(bare(slotcodec.Guard)), has(5), ""},
		{ok(bare(slotcodec.Clear)), has(5), ""},
		{ok([]byte(slotcodec.Unsealed)), has(5), ""},
		// Placement filled the slot in version 7.
		{admin.KeyState{Status: "OK", Version: 8, Value: []byte(slotcodec.Unsealed)}, has(5),
			placement.Forged},
		{ok(bare(slotcodec.Unfit)), has(5), placement.ValueTooLarge},
		{ok(bare(slotcodec.Unfit)), leased, ""},
		{ok([]byte("strange")), has(5), placement.Forged},
		{ok(nil), has(5), placement.Forged},
		{ok(slot(slotcodec.Value, 5)[:30]), has(5), placement.Forged},             // the cell is too short for a seal
		{ok([]byte("\x02\x05\x00\x01v")), has(5), placement.Forged},               // the value has no seal
		{ok([]byte{byte(slotcodec.Guard), 1, 1}), has(5), placement.Forged},       // a guard without a seal
		{ok([]byte{byte(slotcodec.Clear), byte(0)}), has(5), placement.Forged},    // a clear cell with extra bytes
		{ok([]byte{byte(slotcodec.Unfit)}), has(5), placement.Forged},             // an unfit cell without a seal
		{ok([]byte{byte(slotcodec.Absent), byte(77)}), gone(5), placement.Forged}, // an absence without a seal
		{admin.KeyState{Status: "NOT_FOUND"}, has(5), placement.SlotLost},
		{admin.KeyState{Status: "UNREACHABLE"}, has(5), ""},
		{admin.KeyState{Status: "DIRTY", Value: slot(slotcodec.Value, 4)}, has(5), ""},
	} {
		if got, _ := judge(c.slot, 7, c.etcd); got != c.want {
			t.Errorf("%+v beside %+v: %q, want %q", c.slot, c.etcd, got, c.want)
		}
	}
}

// TestPauseAfterLook: if changes in etcd cause checks, the checks take at most a tenth of the time.
// No pause is longer than a check may take.
func TestPauseAfterLook(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: lookPause, 100 * time.Microsecond: lookPause, 5 * time.Millisecond: 45 * time.Millisecond,
		looking: looking,
	} {
		if got := pauseAfter(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
