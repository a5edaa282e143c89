package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/store"
	hubs "github.com/netcraq/netcraq/nodeapi/watch"
	"github.com/netcraq/netcraq/nodeapi/watch/watchrules"
)

const scaleSocket = "NETCRAQ_SCALE_SOCKET" // environment variable with the address of the server's process

// hubStore is a store in memory whose watches use a hub, as in a node's server.
type hubStore struct {
	*store.Memory
	hub *hubs.Hub
}

func newHubStore() hubStore {
	m := store.NewMemory(1024)
	return hubStore{m, hubs.NewHub(memoryReader{m}, hubs.Config{Unhelped: time.Hour, Round: time.Hour})}
}

func (s hubStore) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	return s.hub.Watch(ctx, w, tell)
}

func (s hubStore) Put(ctx context.Context, key store.Key, value []byte) (wire.Version, error) {
	v, err := s.Memory.Put(ctx, key, value)
	s.hub.Suspect(key) // tell the hub, as a notification from the network would
	return v, err
}

type memoryReader struct{ *store.Memory }

func (m memoryReader) Read(ctx context.Context, key store.Key) (watchrules.Reading, error) {
	i, err := m.Get(ctx, key, false)
	return watchrules.Reading{Item: i}, err
}

// TestScaleServer runs the server of TestScale in a separate process. It ends when its input ends.
func TestScaleServer(t *testing.T) {
	path := os.Getenv(scaleSocket)
	if path == "" {
		t.Skip("TestScale starts it")
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Store: newHubStore(), Namespace: "default"})
	defer s.Close()
	go func() { _ = s.Serve(l) }()
	fmt.Println("listening")
	// for each line of input, the process returns free memory to the system
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		debug.FreeOSMemory()
		fmt.Println("freed")
	}
}

// TestScale measures many connections and watches. It takes a minute. Run it with: NETCRAQ_SCALE=1
// go test -run TestScale$ -v ./nodeapi/server
func TestScale(t *testing.T) {
	if os.Getenv("NETCRAQ_SCALE") == "" {
		t.Skip("it measures; NETCRAQ_SCALE=1 runs it")
	}
	const connections, each, rounds = 10_000, 10, 2000
	path := filepath.Join(t.TempDir(), "node.sock")
	process := exec.Command(os.Args[0], "-test.run", "^TestScaleServer$")
	process.Env = append(os.Environ(), scaleSocket+"="+path)
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	process.Stderr = &said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = process.Wait()
	}()
	out := bufio.NewReader(pipe)
	if text, err := out.ReadString('\n'); text != "listening\n" {
		t.Fatal(text, err)
	}
	memory := func() string {
		fmt.Fprintln(in)
		_, _ = out.ReadString('\n')
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Process.Pid))
		return string(regexp.MustCompile(`VmRSS:\s*(\d+ kB)`).Find(text))
	}
	l := dial(t, path)
	_ = l.SetDeadline(time.Time{})
	percentiles := func(took []time.Duration) string {
		slices.Sort(took)
		return fmt.Sprintf("p50 %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
	}
	latency := func(what string) {
		t.Helper()
		var took []time.Duration
		for range rounds {
			begun := time.Now()
			l.ask(`{"id":1,"func":"get","data":{"key":"none"}}`, `{"id":1,"data":{"key":"none","found":false,"version":"0.0"}}`)
			took = append(took, time.Since(begun))
		}
		t.Logf("%-20s get %s; %s", what, percentiles(took), memory())
	}
	var stalled sync.Once
	stacks := func() string { // stacks ends the server, and returns the stacks of its goroutines
		_ = process.Process.Signal(syscall.SIGQUIT)
		_ = process.Wait()
		return said.String()
	}
	latency("1 connection:")
	conns := make([]net.Conn, connections)
	for i := range conns {
		// Try again, because the kernel refuses a connection if the server accepts connections
		// slowly.
		poll.Nil(t, time.Minute, fmt.Sprint("connection ", i), func() error {
			conns[i], err = net.Dial("unix", path)
			return err
		})
		defer conns[i].Close()
	}
	latency(fmt.Sprint(connections, " connections:"))
	var wg sync.WaitGroup
	var watched atomic.Int64
	begun := time.Now()
	for part := range 10 {
		wg.Go(func() {
			buf := make([]byte, 64<<10)
			for i := part; i < connections; i += 10 {
				for n := range each {
					fmt.Fprintf(conns[i], `{"id":%d,"func":"watch","data":{"keys":["k%d"]}}`+"\n", n+1, i*each+n)
				}
				var answers []byte
				for bytes.Count(answers, []byte("\n")) < 2*each {
					_ = conns[i].SetReadDeadline(time.Now().Add(time.Minute))
					n, err := conns[i].Read(buf)
					if answers = append(answers, buf[:n]...); err != nil {
						stalled.Do(func() {
							t.Errorf("connection %d: %v after\n%sThe server's stacks:\n%.20000s", i, err, answers, stacks())
						})
						return
					}
				}
				if n := watched.Add(each); n%(connections*each/5) == 0 {
					t.Logf("%d watches after %v", n, time.Since(begun).Round(time.Millisecond))
				}
			}
		})
	}
	wg.Wait()
	latency(fmt.Sprint(connections*each, " watches:"))
	// took has the times from a put to its event at another connection, which watches the key.
	var took []time.Duration
	buf := make([]byte, 4<<10)
	for n := range rounds {
		i := n * 7 % connections
		begun := time.Now()
		_ = conns[i].SetReadDeadline(begun.Add(time.Minute))
		l.send(fmt.Sprintf(`{"id":2,"func":"put","data":{"key":"k%d","value":"v"}}`, i*each))
		if _, err := conns[i].Read(buf); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
		l.receive()
	}
	t.Logf("from a put to its watcher: %s", percentiles(took))
}
