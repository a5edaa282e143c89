package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// count is the number of times that s occurs in a program's output.
func count(errs *syncbuffer.Buffer, s string) int { return strings.Count(errs.String(), s) }

// TestOutOfDescriptors checks that a program without free file descriptors logs this once and
// counts it. The program still serves connected clients, and wastes no processor time on waiting
// ones. It accepts waiting clients as soon as descriptors are free.
func TestOutOfDescriptors(t *testing.T) {
	errs := &syncbuffer.Buffer{}
	cmd, at := startProgram(t, errs)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	early := etcdtest.Client(t, at)
	if _, err := early.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	limit := uint64(len(open) + 5)
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit + 1000},
		nil); err != nil {
		t.Fatal(err)
	}
	var others []net.Conn
	for range 20 { // the kernel accepts these connections, but the program lacks descriptors for them
		c, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		others = append(others, c)
	}
	until := func(what string, so func() bool) {
		t.Helper()
		poll.Until(t, 20*time.Second, what, so)
	}
	until("it says so", func() bool { return count(errs, "clients cannot connect") > 0 })
	// used returns the program's processor time in hundredths of a second.
	used := func() int {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		sum := 0
		for _, f := range fields[11:13] {
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	before := used()
	time.Sleep(time.Second)
	if d := used() - before; d > 20 {
		t.Errorf("it takes %d %% of a processor while nobody asks anything", d)
	}
	if r, err := early.Get(t.Context(), "k"); err != nil || len(r.Kvs) != 1 {
		t.Errorf("who was connected: %v, %v", r, err)
	}
	for _, c := range others {
		c.Close()
	}
	until("it says that clients can connect again", func() bool { return count(errs, "clients can connect again") > 0 })
	if r, err := etcdtest.Client(t, at).Get(t.Context(), "k"); err != nil || len(r.Kvs) != 1 {
		t.Errorf("who comes later: %v, %v", r, err)
	}
	r, err := http.Get(at + "/proxy/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	metrics, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(metrics), "etcd_monitor_accept_errors_total") || strings.Contains(string(metrics), "etcd_monitor_accept_errors_total 0") {
		t.Error("it was not counted")
	}
	if n := count(errs, "clients cannot connect"); n != 1 || count(errs, "ulimit -n") != 1 {
		t.Errorf("said %d times", n)
	}
}
