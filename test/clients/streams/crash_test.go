package streams_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
)

// role is the environment variable that tells a child process what to do. The child process runs
// the test binary.
const role = "NETCRAQ_STREAMS_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "server":
		err = serve(os.Args[1])
	case "consumer":
		var partitions int
		if partitions, err = strconv.Atoi(os.Args[3]); err == nil {
			err = consume(os.Args[1], os.Args[2], partitions, os.Args[4] == "pull")
		}
	case "counter":
		err = count(os.Args[1], os.Args[2])
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
	counted := prometheus.NewRegistry()
	told, err := server.Listen("unix://"+filepath.Join(dir, "metrics"), server.Access{Mode: 0o600, GID: -1})
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(told, promhttp.HandlerFor(counted, promhttp.HandlerOpts{})) }()
	return server.New(server.Config{Store: store.NewMemory(1024), Name: "test", Node: "here", Namespace: "default",
		Log:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Metrics: counted, Streams: &broker.Options{Dir: filepath.Join(dir, "streams")}}).Serve(l)
}

// exitWithStdin ends this process when its standard input ends, which happens when the test process
// has ended.
func exitWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// consume writes each record as a line into the file of its partition. It starts after the last
// whole line of each file.
func consume(socket, path string, partitions int, pull bool) error {
	go exitWithStdin()
	cfg := streams.Config{Socket: socket, Stream: "s", Consumer: filepath.Base(path), Pull: pull}
	var files []*os.File
	for n := range partitions {
		f, err := os.OpenFile(ofPartition(path, n), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		next, err := position(f)
		if err != nil {
			return err
		}
		files = append(files, f)
		cfg.Partitions, cfg.Offsets = append(cfg.Partitions, n), append(cfg.Offsets, next)
	}
	r, err := streams.Open(context.Background(), cfg)
	if err != nil {
		return err
	}
	for {
		b, err := r.Next(context.Background())
		if err != nil {
			return err
		}
		if b.Missed > 0 {
			return fmt.Errorf("%d records before %d of partition %d were missed", b.Missed, b.Offset, b.Partition)
		}
		for offset, record := range b.Records() {
			if _, err := fmt.Fprintf(files[b.Partition], "%d %s\n", offset, record.Data); err != nil {
				return err
			}
		}
	}
}

// ofPartition returns the name of a consumer's file for a partition.
func ofPartition(path string, n int) string { return fmt.Sprintf("%s.%d", path, n) }

// position returns the next offset after the offset in the last line. A write is atomic, so each
// line is complete.
func position(f *os.File) (uint64, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	end := make([]byte, min(info.Size(), 100)) // 100 bytes are more than a line has
	if _, err := f.ReadAt(end, info.Size()-int64(len(end))); err != nil {
		return 0, err
	}
	last := strings.TrimSuffix(string(end), "\n")
	last = last[strings.LastIndexByte(last, '\n')+1:]
	number, _, _ := strings.Cut(last, " ")
	offset, err := strconv.ParseUint(number, 10, 64)
	return offset + 1, err
}

// written counts the complete lines of a consumer's file, and calls check with each.
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
			return n, nil // A write is atomic, so each line is complete.
		}
		if check != nil {
			if err := check(n, strings.TrimSuffix(line, "\n")); err != nil {
				return n, err
			}
		}
		n++
	}
}

// process is a child process that can be killed and started again.
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

// proc returns the process's directory in /proc.
func (p *process) proc() string { return filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid)) }

// kill kills the process. If the process has already ended by itself, the test fails.
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

// startServer starts a server, and waits until it listens.
func startServer(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{t: t, role: "server", args: []string{dir}}
	p.start()
	poll.Until(t, patience, "the server to listen", func() bool {
		nc, err := net.Dial("unix", filepath.Join(dir, "s"))
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	return p
}

// fromEnvironment returns the value of an environment variable, such as a number or a duration. It
// returns otherwise if the variable is not set.
func fromEnvironment[T any](t *testing.T, name string, otherwise T, parse func(string) (T, error)) T {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	v, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// TestCrashes kills the server and its consumers at random, again and again, while producers append
// numbered records. Each consumer gets the records of each partition in order, exactly once. The
// killed processes leave no memory and no files behind. $NETCRAQ_STREAMS_CRASHES sets the duration,
// which is 3s by default. $NETCRAQ_STREAMS_PARTITIONS sets the number of partitions (2), and
// $NETCRAQ_STREAMS_CONSUMERS the number of consumers (3). Every third consumer reads by pull.
func TestCrashes(t *testing.T) {
	lasts := fromEnvironment(t, "NETCRAQ_STREAMS_CRASHES", 3*time.Second, time.ParseDuration)
	partitions := fromEnvironment(t, "NETCRAQ_STREAMS_PARTITIONS", 2, strconv.Atoi)
	consumers := fromEnvironment(t, "NETCRAQ_STREAMS_CONSUMERS", 3, strconv.Atoi)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	all := []*process{startServer(t, dir)}
	c, err := node.Connect(t.Context(), node.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(canceled()) }()
	hour := 3_600_000
	config := &nodeapi.StreamConfig{Partitions: partitions, ObjectBytes: 1024, Objects: 16, StallMillis: hour,
		KeepMillis: hour}
	if _, err := c.OpenStream(soon(t), "s", config); err != nil {
		t.Fatal(err)
	}
	var files []string
	for i := range consumers {
		way := "push"
		if i%3 == 2 {
			way = "pull"
		}
		file := filepath.Join(dir, fmt.Sprintf("consumer%d", i))
		files = append(files, file)
		p := &process{t: t, role: "consumer", args: []string{socket, file, strconv.Itoa(partitions), way}}
		p.start()
		all = append(all, p)
	}
	defer func() {
		for _, p := range all {
			_ = p.cmd.Process.Kill()
			p.in.Close()
		}
	}()
	kept := filepath.Join(dir, "streams", "default", "s")
	// The server keeps records for consumers that it knows.
	poll.Until(t, patience, "the consumers to be known", func() bool {
		text, _ := os.ReadFile(filepath.Join(kept, "positions.json"))
		for _, file := range files {
			if strings.Count(string(text), filepath.Base(file)+`"`) != partitions {
				return false
			}
		}
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	produced := make([]uint64, partitions)
	var producers sync.WaitGroup
	for n := range partitions {
		producers.Go(func() { produced[n] = produce(ctx, t, c, n) })
	}
	deadline := time.Now().Add(lasts)
	kills := 0
	for time.Now().Before(deadline) && !t.Failed() {
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		p := all[random.IntN(len(all))]
		p.kill()
		p.start()
		kills++
	}
	cancel()
	producers.Wait()
	t.Logf("%d records, %d kills", produced, kills)
	for _, file := range files {
		for n, next := range produced {
			complete(t, ofPartition(file, n), next)
		}
	}
	// Consumers have mapped only what the last server passed to them.
	for _, p := range all[1:] {
		want := 1 + partitions // the cursor page, and a segment for each partition
		if p.args[3] == "pull" {
			want = 0
		}
		poll.Until(t, patience, "a consumer to have what it needs", func() bool {
			return mappings(t, p.proc()) == want && memoryOpen(t, p.proc()) == 0
		}, func() string {
			return fmt.Sprintf("%d mappings, want %d, and %d descriptors", mappings(t, p.proc()), want, memoryOpen(t, p.proc()))
		})
	}
	// No memory remains of consumers that have ended, and none of servers that were killed.
	for _, p := range all[1:] {
		p.kill()
	}
	server := all[0].proc()
	poll.Until(t, patience, "what consumers held to be given back", func() bool {
		return mappings(t, server) == partitions && memoryOpen(t, server) == partitions
	}, func() string {
		return fmt.Sprintf("%d mappings and %d descriptors, want %d of each", mappings(t, server), memoryOpen(t, server), partitions)
	})
	want := []string{"positions.json", "stream.json"}
	for n := range partitions {
		want = append(want, fmt.Sprintf("%d.ring", n))
	}
	slices.Sort(want)
	var there []string
	// A server may still be writing a file.
	poll.Until(t, patience, "files of killed servers to be removed", func() bool {
		there = names(t, kept)
		return slices.Equal(there, want)
	}, func() string { return fmt.Sprintf("%q, want %q", there, want) })
	if err := c.DeleteStream(soon(t), "s"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, patience, "the deleted stream's memory to be given back", func() bool {
		return mappings(t, server)+memoryOpen(t, server) == 0
	})
	if there := names(t, filepath.Dir(kept)); len(there) != 0 {
		t.Errorf("when the stream is deleted there is %q", there)
	}
}

// TestDeadPredecessors kills consumers with the same name before a busy server has read their
// requests. It then starts another consumer with this name. The server may read the requests in any
// order, but a dead consumer must not replace the living one.
func TestDeadPredecessors(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	server := startServer(t, dir)
	defer func() {
		_ = server.cmd.Process.Kill()
		server.in.Close()
	}()
	c, err := node.Connect(t.Context(), node.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(canceled()) }()
	if _, err := c.OpenStream(soon(t), "s", &nodeapi.StreamConfig{Partitions: 2, ObjectBytes: 1024,
		Objects: 16}); err != nil {
		t.Fatal(err)
	}
	for try := range 10 {
		if err := server.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			nc, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.WriteString(nc, `{"id":1,"func":"subscribe","data":{"stream":"s","consumer":"me"}}`+"\n")
			nc.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
		opened := make(chan error, 1)
		var r *streams.Reader
		go func() {
			var err error
			r, err = streams.Open(t.Context(),
				streams.Config{Socket: socket, Stream: "s", Consumer: "me", Partitions: []int{0, 1}})
			opened <- err
		}()
		time.Sleep(20 * time.Millisecond) // after this time, the consumer has connected
		if err := server.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := <-opened; err != nil {
			t.Fatalf("try %d: %v", try, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := r.Next(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("try %d: the living consumer ended: %v", try, err)
		}
		r.Close()
	}
}

// complete waits until a consumer has recorded every record of a partition exactly once.
func complete(t *testing.T, file string, next uint64) {
	t.Helper()
	last := func() uint64 {
		f, err := os.Open(file)
		if err != nil {
			return 0
		}
		defer f.Close()
		n, _ := position(f)
		return n
	}
	poll.Until(t, 2*patience, "a consumer to have read all", func() bool { return last() >= next },
		func() string { return fmt.Sprintf("%s has %d of %d", filepath.Base(file), last(), next) })
	n, err := written(file, func(n uint64, line string) error {
		if line != fmt.Sprintf("%d record %d", n, n) {
			return fmt.Errorf("line %d is %q", n, line)
		}
		return nil
	})
	if err != nil || n != next {
		t.Errorf("%s: %d of %d: %v", filepath.Base(file), n, next, err)
	}
}

// mappings counts the files of streams that a process has mapped.
func mappings(t *testing.T, process string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(process, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "netcraq-")
}

// memoryOpen counts the open file descriptors of a process that refer to shared memory.
func memoryOpen(t *testing.T, process string) (n int) {
	t.Helper()
	links, err := filepath.Glob(filepath.Join(process, "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if name, _ := os.Readlink(l); strings.Contains(name, "memfd:") {
			n++
		}
	}
	return n
}

// names returns the names of the files in a directory.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		out = append(out, e.Name())
	}
	return out
}

// produce appends numbered records to a partition, each exactly once, until ctx ends. Each append
// says at which offset it must begin. If the outcome of an append is unknown, produce asks for the
// offset of the stream's end.
func produce(ctx context.Context, t *testing.T, c *node.Client, partition int) (next uint64) {
	for ctx.Err() == nil {
		next += put(t, c, partition, next, 1+rand.IntN(20))
		// The pause keeps the files small. The number of records does not matter.
		time.Sleep(time.Millisecond)
	}
	return next
}

// put appends up to n records. The first record must get the offset `at`.
func put(t *testing.T, c *node.Client, partition int, at uint64, n int) uint64 {
	d := to("s")
	d.Partition = partition
	for i := range n {
		text := fmt.Sprintf("record %d", at+uint64(i))
		d.Records = append(d.Records, nodeapi.RecordData{Value: &text})
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
		if err == nil && s.State[partition].Next >= at && s.State[partition].Next <= at+uint64(n) {
			return s.State[partition].Next - at
		}
		if err == nil {
			t.Errorf("the next record of partition %d is %d; %d was acknowledged", partition, s.State[partition].Next, at)
			return 0
		}
		if t.Context().Err() != nil {
			return 0
		}
	}
}
