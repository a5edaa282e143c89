package lab

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// envBusy is set in a child process that keeps a CPU busy.
const envBusy = "NETCRAQ_TEST_BUSY"

// busyMain keeps a CPU busy.
func busyMain() {
	for n := uint64(1); ; n++ {
		if n == 0 {
			os.Exit(1) // this would take a thousand years
		}
	}
}

// Busy starts n processes with the given nice value. Each process keeps a CPU busy until relieve is
// called or the test ends.
func Busy(t *testing.T, n, nice int) (relieve func()) {
	t.Helper()
	var all []*exec.Cmd
	relieve = sync.OnceFunc(func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	t.Cleanup(relieve)
	for range n {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envBusy+"=1", "GOMAXPROCS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, nice); err != nil {
			t.Fatal(err)
		}
	}
	return relieve
}

// Metric returns the value of a time series in the Prometheus metrics of a server at url.
func Metric(t *testing.T, url, series string) float64 {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
		if text, ok := strings.CutPrefix(scan.Text(), series+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("%s/metrics has no %s", url, series)
	return 0
}
