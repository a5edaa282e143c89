package streams

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/poll"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
)

// role is what a process is that the test starts: the test's own program, again.
const role = "NETCRAQ_STREAMS_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "server":
		err = serve(os.Args[1])
	case "consumer":
		err = consume(os.Args[1], os.Args[2], os.Args[3] == "pull")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve serves the node API until it is killed.
func serve(dir string) error {
	go exitWithStdin()
	l, err := server.Listen("unix://"+filepath.Join(dir, "s"), server.Access{Mode: 0o600, GID: -1})
	if err != nil {
		return err
	}
	return server.New(server.Config{Store: store.NewMemory(1024), Name: "test", Node: "here", Namespace: "default",
		Log:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Streams: &broker.Options{Dir: filepath.Join(dir, "streams")}}).Serve(l)
}

// exitWithStdin ends the process when the test has.
func exitWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// consume writes each record into a file, a line each, and begins behind the last whole line.
func consume(socket, path string, pull bool) error {
	go exitWithStdin()
	next, err := written(path, nil)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	cfg := Config{Socket: socket, Stream: "s", Consumer: filepath.Base(path), Pull: pull, Partitions: []int{0},
		Offsets: []uint64{next}}
	r, err := Open(context.Background(), cfg)
	if err != nil {
		return err
	}
	for {
		b, err := r.Next(context.Background())
		if err != nil {
			return err
		}
		if b.Missed > 0 {
			return fmt.Errorf("%d records before %d were missed", b.Missed, b.Offset)
		}
		for offset, record := range b.Records() {
			if _, err := fmt.Fprintf(f, "%d %s\n", offset, record.Data); err != nil {
				return err
			}
		}
	}
}

// written is how many whole lines a consumer's file has; check is told each.
func written(path string, check func(n uint64, line string) error) (n uint64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return n, nil // a write is whole, or not at all: so is a line
		}
		if check != nil {
			if err := check(n, strings.TrimSuffix(line, "\n")); err != nil {
				return n, err
			}
		}
		n++
	}
}

// process is one that is killed and started again.
type process struct {
	t    *testing.T
	role string
	args []string
	cmd  *exec.Cmd
	in   io.Closer
	end  chan error
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0], p.args...)
	p.cmd.Env = append(os.Environ(), role+"="+p.role)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.in, p.end = in, make(chan error, 1)
	go func(c *exec.Cmd, end chan error) { end <- c.Wait() }(p.cmd, p.end)
}

// kill kills it. That it had ended by itself is a failure.
func (p *process) kill() {
	p.t.Helper()
	select {
	case err := <-p.end:
		p.t.Errorf("the %s ended: %v", p.role, err)
	default:
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		<-p.end
	}
	p.in.Close()
}

// TestCrashes: the server and its consumers are killed at random, again and again, while numbered
// records are appended. None is lost, none is there twice, all are in order, for each consumer.
// $NETCRAQ_STREAMS_CRASHES is for how long: 3s if it is not set.
func TestCrashes(t *testing.T) {
	lasts := 3 * time.Second
	if text := os.Getenv("NETCRAQ_STREAMS_CRASHES"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	all := []*process{{t: t, role: "server", args: []string{dir}}}
	all[0].start()
	poll.Until(t, patience, "the server to listen", func() bool {
		nc, err := net.Dial("unix", socket)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	c, err := node.Connect(t.Context(), node.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(canceled()) }()
	hour := 3_600_000
	config := &api.StreamConfig{ObjectBytes: 1024, Objects: 16, StallMillis: hour, KeepMillis: hour}
	if _, err := c.OpenStream(soon(t), "s", config); err != nil {
		t.Fatal(err)
	}
	var files []string
	for i, way := range []string{"push", "push", "pull"} {
		file := filepath.Join(dir, fmt.Sprintf("consumer%d", i))
		files = append(files, file)
		p := &process{t: t, role: "consumer", args: []string{socket, file, way}}
		p.start()
		all = append(all, p)
	}
	defer func() {
		for _, p := range all {
			_ = p.cmd.Process.Kill()
			p.in.Close()
		}
	}()
	poll.Until(t, patience, "the consumers to be known", func() bool { // from then on nothing goes without them
		text, _ := os.ReadFile(filepath.Join(dir, "streams", "default", "s", "positions.json"))
		for _, file := range files {
			if !strings.Contains(string(text), filepath.Base(file)) {
				return false
			}
		}
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	produced := make(chan uint64, 1)
	go func() { produced <- produce(ctx, t, c) }()
	deadline := time.Now().Add(lasts)
	kills := 0
	for time.Now().Before(deadline) {
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		p := all[random.IntN(len(all))]
		p.kill()
		p.start()
		kills++
	}
	cancel()
	next := <-produced
	t.Logf("%d records, %d kills", next, kills)
	for i, file := range files {
		var bad error
		poll.Until(t, 2*patience, "a consumer to have read all", func() bool {
			var n uint64
			n, bad = written(file, func(n uint64, line string) error {
				if line != fmt.Sprintf("%d record %d", n, n) {
					return fmt.Errorf("line %d is %q", n, line)
				}
				return nil
			})
			return bad != nil || n == next
		}, func() string {
			n, _ := written(file, nil)
			return fmt.Sprintf("consumer %d has %d of %d", i, n, next)
		})
		if bad != nil {
			t.Errorf("consumer %d: %v", i, bad)
		}
	}
	// Of consumers that are gone, nothing is left.
	for _, p := range all[1:] {
		p.kill()
	}
	server := strconv.Itoa(all[0].cmd.Process.Pid)
	poll.Until(t, patience, "what consumers held to be given back", func() bool {
		text, err := os.ReadFile(filepath.Join("/proc", server, "maps"))
		return err == nil && strings.Count(string(text), "netcraq-") == 1
	})
	links, _ := filepath.Glob(filepath.Join("/proc", server, "fd", "*"))
	memory := 0
	for _, l := range links {
		if name, _ := os.Readlink(l); strings.Contains(name, "memfd:") {
			memory++
		}
	}
	if memory != 1 {
		t.Errorf("%d descriptors of memory are open, not the segment's alone", memory)
	}
}

// produce appends numbered records until ctx ends, each once: it says at which offset, and looks
// where the stream is when it does not know what became of one.
func produce(ctx context.Context, t *testing.T, c *node.Client) (next uint64) {
	for ctx.Err() == nil {
		next += put(t, c, next, 1+rand.IntN(20))
	}
	return next
}

// put appends up to n records, the first of which is to have an offset.
func put(t *testing.T, c *node.Client, at uint64, n int) uint64 {
	d := to("s")
	for i := range n {
		text := fmt.Sprintf("record %d", at+uint64(i))
		d.Records = append(d.Records, api.RecordData{Value: &text})
	}
	d.At = &at
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	a, err := c.Append(ctx, d)
	if err == nil {
		return uint64(a.Appended)
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		s, err := c.OpenStream(ctx, "s", nil)
		cancel()
		if err == nil && s.State[0].Next >= at && s.State[0].Next <= at+uint64(n) {
			return s.State[0].Next - at
		}
		if err == nil {
			t.Errorf("the next record is %d; %d was acknowledged", s.State[0].Next, at)
			return 0
		}
		if t.Context().Err() != nil {
			return 0
		}
	}
}
