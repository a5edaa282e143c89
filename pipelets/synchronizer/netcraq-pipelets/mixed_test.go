package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/internal/testutil/before"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// upgraded is a worker of a pipelet that the test replaces by a worker of another release.
type upgraded struct {
	t      *testing.T
	file   string
	out    syncbuffer.Buffer
	worker *exec.Cmd
}

// start starts a worker with the binary of a release. It stops the old worker before or, if overlap
// is not 0, that much later.
func (u *upgraded) start(binary string, overlap time.Duration) {
	u.t.Helper()
	if overlap == 0 {
		u.stop()
	}
	next := exec.Command(binary, "run", u.file)
	next.Env = append(os.Environ(), "NETCRAQ_PIPELETS_TEST_COMMAND=1")
	next.Stdout, next.Stderr = &u.out, &u.out
	next.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := next.Start(); err != nil {
		u.t.Fatal(err)
	}
	time.Sleep(overlap)
	if overlap > 0 {
		u.stop()
	}
	u.worker = next
}

// stop ends the worker with the signal that systemd and Kubernetes use.
func (u *upgraded) stop() {
	if u.worker == nil {
		return
	}
	if err := u.worker.Process.Signal(syscall.SIGTERM); err != nil {
		u.t.Errorf("the worker has ended by itself: %v\n%s", err, u.out.String())
	}
	_ = u.worker.Wait()
	u.worker = nil
}

// TestMixedPipelets upgrades the worker of a pipelet from the last release to this tree, and
// downgrades it again. It does so by a restart, and with both releases running for a while. The
// worker's position and state are in its destinations, so each release must continue where the
// other stopped. Each record must be counted once. The test logs the longest time without a window
// in each step.
func TestMixedPipelets(t *testing.T) {
	old := filepath.Join(before.Build(t, "./pipelets/synchronizer/netcraq-pipelets"), "netcraq-pipelets")
	now := os.Args[0]
	from, to := newServer(t), newServer(t)
	lake := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	numbered := make(chan int, 1)
	go func() { numbered <- number(ctx, from, "load/") }()

	var mu sync.Mutex
	var arrived []time.Time
	watch := to.Client.Watch(ctx, "out/total", clientv3.WithRev(1))
	go func() {
		for r := range watch {
			mu.Lock()
			for range r.Events {
				arrived = append(arrived, time.Now())
			}
			mu.Unlock()
		}
	}()
	longest := func(since time.Time) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		gap, last := time.Duration(0), since
		for _, at := range append(arrived, time.Now()) {
			if at.After(last) {
				gap, last = max(gap, at.Sub(last)), at
			}
		}
		return gap
	}

	u := &upgraded{t: t, file: totals(t, from, to, lake)}
	defer func() {
		if u.worker != nil {
			_ = u.worker.Process.Kill()
			_ = u.worker.Wait()
		}
	}()
	step := func(what, binary string, overlap time.Duration) {
		t.Helper()
		begin := time.Now()
		u.start(binary, overlap)
		time.Sleep(5 * time.Second)
		t.Logf("%-40s longest without a window %5d ms", what, longest(begin).Milliseconds())
	}
	step("started: before", old, 0)
	step("up, by a restart", now, 0)
	step("down, by a restart", old, 0)
	step("up, both at work for 2 s", now, 2*time.Second)
	step("down, both at work for 2 s", old, 2*time.Second)
	step("up again, by a restart", now, 0)
	cancel()
	n := <-numbered
	files := checkTotals(t, to, lake, n, u.out.String)
	t.Logf("%d records in %d windows", n, files)
	if n < 1000 || files < 50 {
		t.Error("too little happened")
	}
}
