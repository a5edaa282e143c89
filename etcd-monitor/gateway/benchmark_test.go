package gateway

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// TestBenchmark runs etcd's own load generator (go.etcd.io/etcd/v3/tools/benchmark) through the
// gateway. TestPlaced does the same while keys are placed and removed.
func TestBenchmark(t *testing.T) {
	path := etcdtest.Tool(t, "go.etcd.io/etcd/v3/tools/benchmark")
	for way, served := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := etcdtest.New(t, 1, etcdtest.Options{})
			benchmarkWorks(t, path, beginWay(t, served, c.Endpoints()...).Endpoint)
		})
	}
}

// bars matches the lines of a report's histograms, with the number of answered requests.
var bars = regexp.MustCompile(`(?m)^ +\S+ \[(\d+)\]\t\|`)

// benchmarkWorks runs every load of etcd's benchmark that involves a gateway. Each request must get
// an answer without an error.
func benchmarkWorks(t *testing.T, path, endpoint string) {
	t.Helper()
	for _, load := range []struct {
		args string
		want int // expected number of answers
	}{
		{"put --total 200 --key-space-size 5 --sequential-keys --val-size 64", 200},
		{"range w1 --total 300", 300},
		{"range w1 --total 300 --consistency s", 300},
		{"txn-put --total 50 --txn-ops 3 --key-space-size 5", 50},
		{"txn-mixed --total 100 --key-space-size 5 --limit 3", 100},
		{"stm --total 60 --keys 3", 60},
		{"stm --total 20 --stm-locker lock-client", 20},
		{"stm --total 20 --stm-locker lock-rpc", 20},
		// Each of the 50 puts gets an answer, and each of the 4 watchers gets 50 events.
		{"watch-latency --put-total 50 --streams 2 --watchers-per-stream 2", 50 + 4*50},
		{"lease-keepalive --total 50", 50},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		out, err := exec.CommandContext(ctx, path, append([]string{"--endpoints", endpoint, "--clients", "3",
			"--conns", "2"}, strings.Fields(load.args)...)...).CombinedOutput()
		cancel()
		answers := 0
		for _, m := range bars.FindAllSubmatch(out, -1) {
			n, _ := strconv.Atoi(string(m[1]))
			answers += n
		}
		if err != nil || answers != load.want || strings.Contains(string(out), "Error distribution") {
			t.Errorf("benchmark %s: %d answers, not %d; %v\n%s", load.args, answers, load.want, err, out)
		}
	}
}
