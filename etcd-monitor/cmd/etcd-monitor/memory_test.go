package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/racedetector"
)

// startProgram builds the program and runs it as a gateway in front of an etcd, until the test
// ends. It returns the address of the program's API.
func startProgram(t *testing.T, stderr io.Writer) (cmd *exec.Cmd, at string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "etcd-monitor")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	cmd = exec.Command(program, "--endpoints", cluster.Endpoints()[0], "--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	s := bufio.NewScanner(out)
	if !s.Scan() {
		t.Fatal("the program does not start")
	}
	return cmd, endpoint(t, s.Text())
}

// TestMemory reads more and more different keys through the program. The program's memory must grow
// by less than 64 MB. NETCRAQ_MEMORY_KEYS=1000000 selects the long run. The short run, too, reads
// many times more keys than the 8,192 keys that have counters.
func TestMemory(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("skipped: the client and etcd take minutes with the race detector; make test runs it without")
	}
	const limit = 64 << 10 // limit of the program's growth in KiB
	keys := 30_000
	if s := os.Getenv("NETCRAQ_MEMORY_KEYS"); s != "" {
		var err error
		if keys, err = strconv.Atoi(s); err != nil {
			t.Fatalf("NETCRAQ_MEMORY_KEYS: %v", err)
		}
	}
	cmd, at := startProgram(t, nil)
	c := etcdtest.Client(t, at)
	next := atomic.Int64{}
	readTo := func(n int) (kib int) {
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				key := make([]byte, 40, 64)
				for i := next.Add(1); i <= int64(n); i = next.Add(1) {
					if _, err := c.Get(t.Context(), string(binary.BigEndian.AppendUint64(key, uint64(i))),
						clientv3.WithSerializable()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		next.Store(int64(n))
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				if kib, err = strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest),
					"kB"))); err != nil {
					t.Fatal(err)
				}
			}
		}
		return kib
	}
	few, half := readTo(1000), readTo(keys/2)
	many := readTo(keys)
	t.Logf("most memory in use: %.1f MiB after 1,000 keys, %.1f MiB after %d, %.1f MiB after %d", float64(few)/1024, float64(half)/1024, keys/2, float64(many)/1024, keys)
	if few == 0 || many-few > limit {
		t.Errorf("%d KiB more for %d keys than for 1,000; %d at most", many-few, keys, limit)
	}
	if many-half > limit/4 {
		t.Errorf("it grows with the keys: %d KiB, then %d KiB", half, many)
	}
}
