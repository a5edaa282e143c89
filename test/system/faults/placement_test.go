package faults

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/controlplane/placement/placementcontroller"
	"github.com/netcraq/netcraq/test/system/lab"
)

// heatServer answers like a Prometheus server that has scraped the gateways.
type heatServer struct {
	mu    sync.Mutex
	reads map[string]float64
}

func (h *heatServer) set(reads map[string]float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads = reads
}

func (h *heatServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.ParseForm()
	var samples []string
	h.mu.Lock()
	if strings.Contains(r.Form.Get("query"), placementcontroller.ReadsMetric) {
		for k, x := range h.reads {
			samples = append(samples, fmt.Sprintf(`{"metric":{"key":%q},"value":[0,"%g"]}`, k, x))
		}
	}
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(samples, ","))
}

// agree returns whether the placement entries in etcd are exactly for the keys in want, and the
// switches have these keys under the same KEY_IDs.
func agree(t *lab.Team, want []string) bool {
	t.Seen = ""
	entries, broken, _, err := placement.Store{KV: t.Etcd, Prefix: placement.DefaultPrefix}.List(t.Network.T.Context())
	if err != nil || len(broken) > 0 {
		t.Seen = fmt.Sprintf("broken entries %v, %v", broken, err)
		return false
	}
	if got := slices.Sorted(maps.Keys(entries)); !slices.Equal(got, want) {
		t.Seen = fmt.Sprintf("etcd has %q, not %q", got, want)
		return false
	}
	keys, err := t.API().Directory(t.Network.T.Context(), "etcd:", true)
	if err != nil || len(keys) != len(entries) {
		t.Seen = fmt.Sprintf("the directory has %+v, %v", keys, err)
		return false
	}
	for _, k := range keys {
		e, ok := entries[strings.TrimPrefix(k.Name, "etcd:")]
		if !ok || uint32(e.ID) != k.KeyID {
			t.Seen = fmt.Sprintf("%+v is not %+v", k, e)
			return false
		}
		for _, s := range k.State {
			if kind, _, _, err := slotcodec.ReadSlot(s.Value); s.Status != "OK" || err != nil || kind != slotcodec.Clear {
				t.Seen = fmt.Sprintf("%+v: %v, %v", k, kind, err)
				return false
			}
		}
	}
	return true
}

// In TestPlacement, real controllers place keys in real switches while the load changes from key to
// key. The leading controller is killed at each kind of step in turn. In the end, the hottest keys
// must be placed, and etcd and the switches must agree. Then a client bypasses the gateways and
// writes directly to etcd.
func TestPlacement(t *testing.T) {
	lab.MustLook(t, "etcd")
	if !lab.InNamespace(t) {
		return
	}
	heat := &heatServer{}
	prometheus := httptest.NewServer(heat)
	defer prometheus.Close()
	l := lab.Line(3, 200)
	l.Profile = wire.Profile1024
	nw := lab.NewNetwork(t, "auto", l)
	team := lab.StartTeam(nw, "--prometheus", prometheus.URL, "--placement-admit-after", "0s", "--placement-min-residency", "0s", "--placement-moves", "100000", "--log-level", "warn")
	team.Until("the chain to be ready", func() bool { return len(team.Members()) == 3 })
	r := rand.New(rand.NewPCG(1, 2))
	const keys = 100
	key := func(n int) string { return fmt.Sprintf("/key/%02d", n) }
	for n := range keys { // the keys must exist, because placement ignores keys that do not exist
		if _, err := team.Etcd.Put(t.Context(), key(n), "x"); err != nil {
			t.Fatal(err)
		}
	}
	hot := func(n int) []string {
		reads := map[string]float64{}
		for range n {
			reads[key(r.IntN(keys))] = 10 + 10*r.Float64()
		}
		heat.set(reads)
		return slices.Sorted(maps.Keys(reads))
	}
	exclude := func(prefix, choice string) {
		t.Helper()
		team.Until(choice+" "+prefix, func() bool {
			_, err := team.API().SetPlacementRule(t.Context(), admin.PlacementRule{Key: prefix, Prefix: true,
				Choice: choice})
			return err == nil
		})
	}
	points := []string{"placement.placed", "keys.added", "placement.removed", "keys.removed", "placement.rule"}
	if testing.Short() {
		points = points[1:3]
	}
	for _, point := range points {
		// The twelve hottest keys must be placed. To reach some points, the test then excludes all
		// keys, so that they are removed.
		want := hot(12)
		killed := team.KillAt(point)
		if point == "placement.rule" || strings.HasSuffix(point, "removed") {
			team.Until("they are placed", func() bool { return agree(team, want) })
			exclude("/key/", "exclude")
			want = nil
		}
		select {
		case i := <-killed:
			team.Until("the hottest keys to be placed, and no others, after a leader was killed at "+point, func() bool { return agree(team, want) })
			team.Start(i)
		case <-time.After(25 * time.Second):
			t.Fatalf("the leader did not come to %q", point)
		}
		exclude("/key/", "exclude")
		team.Until("none to be placed", func() bool { return agree(team, nil) })
		heat.set(nil)
		team.Until("the leader has heard that nothing is hot", func() bool {
			show, err := team.API().Placement(t.Context())
			return err == nil && show.Heat.Keys == 0
		})
		exclude("/key/", "include")
	}

	// Now a reader populates the slot, and then a client writes directly to etcd.
	first, err := team.Etcd.Put(t.Context(), "/k", "1")
	if err != nil {
		t.Fatal(err)
	}
	heat.set(map[string]float64{"/k": 10})
	team.Until("/k is placed", func() bool { return agree(team, []string{"/k"}) })
	k, err := team.API().Lookup(t.Context(), "etcd:/k")
	if err != nil {
		t.Fatal(err)
	}
	p := &wire.Packet{Op: wire.Write, Key: wire.Key(k.KeyID), Request: 1,
		// This value has the form of a sealed value, but it is made without the gateways' keys.
		Value: append(binary.AppendUvarint([]byte{byte(slotcodec.Value) | slotcodec.Sealed},
			uint64(first.Header.Revision)), make([]byte, slotcodec.SealOverhead)...)}
	if reply, err := nw.Hosts[0].Ask(lab.ServiceAddr, p, time.Second); err != nil || reply.Status != wire.OK {
		t.Fatalf("%+v, %v", reply, err)
	}
	time.Sleep(1500 * time.Millisecond) // without another change, the value stays in the slot
	if reply, err := nw.Hosts[1].Read(lab.ServiceAddr, k.KeyID); err != nil || reply.Status != wire.OK {
		t.Fatalf("%+v, %v", reply, err)
	}
	began := time.Now()
	if _, err := team.Etcd.Put(t.Context(), "/k", "2"); err != nil {
		t.Fatal(err)
	}
	team.Until("the key is out of the network", func() bool {
		reply, err := nw.Hosts[1].Read(lab.ServiceAddr, k.KeyID)
		return err == nil && reply.Status == wire.NotFound
	})
	t.Logf("a write past the gateways: out of the network after %v", time.Since(began).Round(time.Millisecond))
	team.Until("its entry is gone", func() bool { return agree(team, nil) })
}
