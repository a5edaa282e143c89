// Package module runs the traffic and the validation of etcd's robustness tests through gateways.
// etcd's own driver needs etcd binaries with failpoints. This driver uses etcd servers in its own
// process and gateways in front of them, and kills both. test/etcdsuite runs it, and describes the
// gateways in environment variables.
package module

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/time/rate"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.etcd.io/etcd/tests/v3/robustness/validate"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/test/etcdsuite/inplace"
)

const (
	// duration of the traffic; in a run with faults, the duration of each of the phases before,
	// between and after the faults
	trafficTime  = 4 * time.Second
	validateTime = time.Minute
	watchTime    = 10 * time.Second // time limit until all watches have seen the last write
	clients      = 8
)

// The traffic of etcd's robustness tests goes through a gateway in front of each of three members,
// or directly to the members. One run is undisturbed. In another run, first a member and then a
// gateway is killed. What clients and watches observe must pass etcd's own validation.

func TestPut(t *testing.T)       { robustness(t, traffic.EtcdPut, traffic.LowTraffic, false) }
func TestPutKilled(t *testing.T) { robustness(t, traffic.EtcdPut, traffic.LowTraffic, true) }
func TestDeleteLease(t *testing.T) {
	robustness(t, traffic.EtcdPutDeleteLease, traffic.LowTraffic, false)
}
func TestDeleteLeaseKilled(t *testing.T) {
	robustness(t, traffic.EtcdPutDeleteLease, traffic.LowTraffic, true)
}
func TestKubernetes(t *testing.T)       { robustness(t, traffic.Kubernetes, traffic.LowTraffic, false) }
func TestKubernetesKilled(t *testing.T) { robustness(t, traffic.Kubernetes, traffic.LowTraffic, true) }

// system is an etcd cluster, with the endpoints that its clients use.
type system struct {
	t         *testing.T
	cluster   *etcdtest.Cluster
	endpoints []string // one endpoint for each member
	mu        sync.Mutex
	ends      []func()
}

func newSystem(t *testing.T) *system {
	s := &system{t: t, cluster: etcdtest.New(t, 3, etcdtest.Options{Adjust: func(c *embed.Config) {
		c.ExperimentalWatchProgressNotifyInterval = 100 * time.Millisecond
	}})}
	if os.Getenv(inplace.EnvGateway) == "" {
		s.endpoints = s.cluster.Endpoints()
		return s
	}
	for i := range s.cluster.Endpoints() {
		url, end := s.gateway(i, "")
		s.endpoints, s.ends = append(s.endpoints, url), append(s.ends, end)
	}
	t.Cleanup(func() {
		for _, end := range s.ends {
			end()
		}
	})
	return s
}

// gateway starts a gateway. It knows all members, and uses its own member first.
func (s *system) gateway(i int, listen string) (url string, end func()) {
	all := s.cluster.Endpoints()
	url, end, err := inplace.Start(listen, append(all[i:], all[:i]...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return url, sync.OnceFunc(end)
}

// disturb kills and restarts a member, and then a gateway.
func (s *system) disturb() {
	leader := s.cluster.Leader()
	s.cluster.Kill(leader)
	time.Sleep(time.Second)
	s.cluster.Start(leader)
	time.Sleep(trafficTime / 2)
	if len(s.ends) == 0 {
		return
	}
	s.ends[1]()
	time.Sleep(time.Second / 2)
	_, s.ends[1] = s.gateway(1, strings.TrimPrefix(s.endpoints[1], "http://"))
}

func robustness(t *testing.T, load traffic.Traffic, profile traffic.Profile, faults bool) {
	if testing.Short() && os.Getenv(inplace.EnvGateway) == "" {
		t.Skip("without gateways this tests etcd alone: make etcd-suite runs it")
	}
	s := newSystem(t)
	log := zaptest.NewLogger(t)
	keys := os.Getenv(inplace.EnvSlots) != ""
	if keys {
		s.place()
	}
	straight := follow(t, s.cluster.Endpoints())
	began, ids := time.Now(), identity.NewIDProvider()
	ctx := t.Context()

	first := s.client(ids, began, s.endpoints...)
	if _, err := first.Put(ctx, "start", "true"); err != nil { // etcd's validation requires this write
		t.Fatal(err)
	}
	var reports []report.ClientReport
	var mu sync.Mutex
	var working, watching sync.WaitGroup
	finish, last := make(chan struct{}), make(chan struct{})
	keep := func(c *client.RecordingClient) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, c.Report())
		c.Close()
	}
	var end int64 // revision of the last write
	for i := range s.endpoints {
		c := s.client(ids, began, s.endpoints[i])
		watching.Go(func() {
			defer keep(c)
			watchAll(t, c, straight.began+1, last, func() int64 { return end })
		})
	}
	limiter, nonUnique, leases := rate.NewLimiter(rate.Limit(profile.MaximalQPS), profile.BurstableQPS),
		traffic.NewConcurrencyLimiter(profile.MaxNonUniqueRequestConcurrency), identity.NewLeaseIDStorage()
	for i := range clients {
		c := s.client(ids, began, s.endpoints[i%len(s.endpoints)])
		working.Go(func() {
			defer keep(c)
			load.RunTrafficLoop(ctx, c, limiter, ids, leases, nonUnique, finish)
		})
	}
	compacting := s.client(ids, began, s.endpoints...)
	working.Go(func() {
		defer keep(compacting)
		load.RunCompactLoop(ctx, compacting, traffic.DefaultCompactionPeriod, finish)
	})
	time.Sleep(trafficTime / 2)
	if faults {
		s.disturb()
	}
	time.Sleep(trafficTime / 2)
	close(finish)
	working.Wait()
	for {
		r, err := first.Put(ctx, "tombstone", fmt.Sprint(time.Since(began)))
		if err == nil {
			end = r.Header.Revision
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	close(last)
	watching.Wait()
	keep(first)
	events := straight.until(end)

	done, failed := 0, 0
	for _, r := range reports {
		for _, op := range r.KeyValue {
			if op.Output.(model.MaybeEtcdResponse).Error == "" {
				done++
			} else {
				failed++
			}
		}
	}
	hits, why := s.hits()
	t.Logf("%d operations done, %d failed, revision %d, %d gets answered by the switches", done, failed, end, hits)
	if done < 100 {
		t.Error("the traffic shows too little")
	}
	reports, persisted := events.translate(t, reports)
	if keys {
		// the Kubernetes traffic uses lists, which switches do not answer
		if hits == 0 && !load.ExpectUniqueRevision() {
			t.Errorf("the switches answered no get: this shows nothing\n%s", why)
		}
		defer lenient()()
	}
	visualize := validate.ValidateAndReturnVisualize(t, log,
		validate.Config{ExpectRevisionUnique: load.ExpectUniqueRevision()}, reports, persisted, validateTime)
	if dir := os.Getenv(inplace.EnvLog); t.Failed() && dir != "" && visualize != nil {
		path := filepath.Join(filepath.Dir(dir), fmt.Sprintf("%s-%d.html", t.Name(), began.Unix()))
		if err := visualize(path); err != nil {
			t.Error(err)
		}
		t.Logf("%s shows the history", path)
	}
}

// hits returns the number of gets that the switches have answered for the running gateways, and the
// reasons why they did not answer the others.
func (s *system) hits() (n int, all string) {
	for i := range s.ends {
		r, err := http.Get(s.endpoints[i] + "/proxy/metrics")
		if err != nil {
			s.t.Fatal(err)
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if !strings.HasPrefix(line, "etcd_monitor_reads_total{") {
				continue
			}
			all += line
			if strings.Contains(line, "answered=\"network\"") {
				fields := strings.Fields(line)
				x, err := strconv.ParseFloat(fields[len(fields)-1], 64)
				if err != nil {
					s.t.Fatal(err)
				}
				n += int(x)
			}
		}
	}
	return n, all
}

func (s *system) client(ids identity.Provider, began time.Time, endpoints ...string) *client.RecordingClient {
	c, err := client.NewRecordingClient(endpoints, ids, began)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// place places the known keys of the traffic, and every other key when it is created.
func (s *system) place() {
	p, err := inplace.NewPlacement(s.cluster.Endpoints(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range 10 {
		p.Place(s.t.Context(), fmt.Sprint("key", i))
	}
	c := etcdtest.Client(s.t, s.cluster.Endpoints()...)
	created := c.Watch(s.t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithFilterDelete())
	var placing sync.WaitGroup
	placing.Go(func() {
		for r := range created {
			for _, e := range r.Events {
				if e.IsCreate() {
					p.Place(s.t.Context(), string(e.Kv.Key))
				}
			}
		}
	})
	s.t.Cleanup(func() {
		c.Close()
		placing.Wait()
		p.Close()
	})
}

// watchAll watches all keys from a revision until it has seen the last write.
func watchAll(t *testing.T, c *client.RecordingClient, from int64, last <-chan struct{}, end func() int64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := from - 1
	var late <-chan time.Time
	for {
		answers := c.Watch(ctx, "", seen+1, true, true, true)
		for open := true; open; {
			var r clientv3.WatchResponse
			select {
			case <-last:
				last, late = nil, time.After(watchTime)
			case <-late:
				t.Errorf("a watch has seen revision %d, not %d", seen, end())
				return
			case r, open = <-answers:
			}
			if r.CompactRevision > seen {
				seen = r.CompactRevision - 1
			}
			if n := len(r.Events); n > 0 {
				seen = r.Events[n-1].Kv.ModRevision
			}
			if last == nil && seen >= end() {
				return
			}
		}
	}
}
