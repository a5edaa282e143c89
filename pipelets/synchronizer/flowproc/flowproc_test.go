package flowproc

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/flow"
)

// deep is JSON nested so deeply that DuckDB's recursion overflows the stack.
var deep = strings.Repeat("[", 400<<10) + strings.Repeat("]", 400<<10)

func text(rows []endpoint.Row) string {
	var all []string
	for _, r := range rows {
		if r.Deleted {
			all = append(all, r.Key+"-")
		} else {
			all = append(all, r.Key+"="+string(r.Value))
		}
	}
	return strings.Join(all, " ")
}

// TestDies checks that a record that overflows DuckDB's stack ends only the flow's process. The
// flow's error must name the remedy, and the flow must pause for longer each time. Another flow of
// the engine must continue.
func TestDies(t *testing.T) {
	t.Parallel()
	e := Open()
	defer e.Close()
	bad, err := e.Compile(t.Context(), "SELECT key, json_structure(value) AS value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	good, err := e.Compile(t.Context(), "SELECT key, length(value) AS value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	records := []endpoint.Record{{Key: "a", Value: []byte("{}")}, {Key: "b", Value: []byte(deep)}}
	for i := range 3 {
		name := fmt.Sprint("batch ", i)
		bad.until = time.Time{}
		_, took, err := bad.RunBatch(t.Context(), name, records)
		for _, want := range []string{"its process ended", "stack", `2 records from "a" to "b"`, "Change the flow"} {
			if err == nil || !strings.Contains(err.Error(), want) || exactlyonce.KindOf(err) != exactlyonce.Wrong {
				t.Fatalf("%v, want %q", err, want)
			}
		}
		if pause := firstPause << i; bad.pause != pause || took != flow.RunTime {
			t.Errorf("a pause of %v after %v, want %v", bad.pause, took, pause)
		}
		rows, _, err := good.RunBatch(t.Context(), name, records)
		if want := fmt.Sprintf("a=2 b=%d", len(deep)); err != nil || text(rows) != want {
			t.Errorf("the other flow: %.100s, %v, want %s", text(rows), err, want)
		}
		process := e.process
		if _, _, again := bad.RunBatch(t.Context(), name, records); again == nil || e.process != process {
			t.Errorf("it is tried again before its pause ends: %v", again)
		}
	}
	bad.until = time.Time{}
	if rows, _, err := bad.RunBatch(t.Context(), "well", records[:1]); err != nil || text(rows) != `a="JSON"` || bad.pause != 0 {
		t.Errorf("the next batch: %q, %v", text(rows), err)
	}
}

// TestCompileBounded checks that harmful SELECTs are refused or do no harm. Without limits they
// would crash the program, use gigabytes of memory or more than a minute, or write to the program's
// standard output.
func TestCompileBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ query, want string }{
		"stack":   {"json_structure(repeat('[', 400000) || repeat(']', 400000))", "stack"},
		"variant": {"(repeat('[', 400000) || repeat(']', 400000))::JSON::VARIANT::VARCHAR", "stack"},
		"merge": {"json_merge_patch(repeat('{\"a\":', 100000) || '1' || repeat('}', 100000), repeat('{\"a\":', 100000) || '1' || " +
			"repeat('}', 100000))", "stack"},
		"list":   {"len(range(1000000000))", "emory"},
		"repeat": {"length(repeat('x', 1000000000) || repeat('y', 1000000000))", "emory"},
		"long": {"list_sum(list_transform(range(1000), x -> list_sum(list_transform(range(1000), y -> list_sum(list_transform(range(1000), " +
			"z -> x * y * z))))))",
			"long"},
		"log": {"(SELECT count(*) FROM enable_logging(storage = 'stdout'))", ""},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			f, err := Compile(t.Context(), "SELECT 'a' AS key, "+c.query+" AS value")
			if f != nil {
				defer f.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				exactlyonce.KindOf(err) != exactlyonce.Wrong) {
				t.Errorf("%v, want %q", err, c.want)
			}
			t.Logf("%v: %v", time.Since(begin), err)
		})
	}
}

// TestLimits checks that a flow's process has its limits in all threads, and has only its socket
// open.
func TestLimits(t *testing.T) {
	f, err := Compile(t.Context(), "SELECT key, value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pid := f.engine.process.cmd.Process.Pid
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, thread.Name()))
		if err == nil && (!strings.Contains(string(b), "Seccomp:\t2") || !strings.Contains(string(b), "NoNewPrivs:\t1")) {
			t.Errorf("a thread is not filtered: %s", b)
		}
	}
	for limit, most := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: 32,
		unix.RLIMIT_DATA: 2 * memory, unix.RLIMIT_AS: 2*memory + 2*space} {
		var is unix.Rlimit
		if err := unix.Prlimit(pid, limit, nil, &is); err != nil || is.Max > most {
			t.Errorf("limit %d: %+v, %v, want %d at most", limit, is, err, most)
		}
	}
	var cpu unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_CPU, nil, &cpu); err != nil || cpu.Cur > 10 {
		t.Errorf("processor time: %+v, %v", cpu, err)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil ||
		string(b) != strings.Join(environment, "\x00")+"\x00" {
		t.Errorf("its environment: %q, %v", b, err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		if fd.Name() == "1" && to != "/dev/null" || strings.HasPrefix(to, "/") && to != "/dev/null" {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
}

// TestFilter checks that a flow's process cannot open a file, make a socket or a process, signal
// another process, or raise a limit.
func TestFilter(t *testing.T) {
	const try = "NETCRAQ_FLOWPROC_TEST_TRY"
	if os.Getenv(try) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestFilter$")
		c.Env = append(os.Environ(), try+"=1")
		if out, err := c.CombinedOutput(); err != nil || string(out) != "done\n" {
			t.Errorf("%s, %v", out, err)
		}
		return
	}
	if err := restrict(); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"open a file": func() error { _, err := os.ReadFile("/proc/self/status"); return err },
		"a socket":    func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return err },
		"a pair":      func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"a process":   func() error { return exec.Command("/proc/self/exe").Run() },
		"a fork": func() error {
			if _, _, err := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); err != 0 {
				return err
			}
			return nil
		},
		"a signal":      func() error { return unix.Kill(os.Getppid(), unix.SIGCONT) },
		"a limit":       func() error { return unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: 9, Max: 9}) },
		"a namespace":   func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"a memory file": func() error { _, err := unix.MemfdCreate("x", 0); return err },
	} {
		if err := do(); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !t.Failed() {
		fmt.Println("done")
		os.Exit(0)
	}
}

// TestEnded checks that a process that is killed while idle is replaced without an error.
func TestEnded(t *testing.T) {
	f, err := Compile(t.Context(), "SELECT key, value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 2 {
		p := f.engine.process
		p.cmd.Process.Kill()
		<-p.gone
		rows, _, err := f.RunBatch(t.Context(), "b", []endpoint.Record{{Key: "k", Value: []byte("1")}})
		if err != nil || text(rows) != "k=1" || f.engine.process == p {
			t.Fatalf("%q, %v", text(rows), err)
		}
	}
}

// TestMemoryAgain checks that a large batch within the limit succeeds after many earlier batches,
// whose memory the process has not returned.
func TestMemoryAgain(t *testing.T) {
	t.Parallel()
	f, err := Compile(t.Context(), "SELECT key, list_sum(list_transform(range(length(value)), x -> x % 7)) AS value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records := []endpoint.Record{{Key: "a", Value: make([]byte, 8<<20)}}
	for i := range records[0].Value {
		records[0].Value[i] = 'x'
	}
	for i := range 8 {
		if _, _, err := f.RunBatch(t.Context(), fmt.Sprint(i), records); err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
	}
}

// TestRecords checks that rows of every kind arrive unchanged, and that batches and rows have
// limits.
func TestRecords(t *testing.T) {
	t.Parallel()
	e := Open()
	defer e.Close()
	f, err := e.Compile(t.Context(), "SELECT key_bytes AS key, bytes AS value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	records := []endpoint.Record{{Key: "a", Value: []byte("1")}, {Key: "", Value: []byte{}}, {Key: "gone", Deleted: true},
		{Key: "\xff\x00", Value: []byte{0xfe, 0}}, {Key: "nil"}}
	for range 2 { // in the second round the process already has the batch
		rows, _, err := f.RunBatch(t.Context(), "b", records)
		if want := "a=1 = gone- \xff\x00=\xfe\x00 nil="; err != nil || text(rows) != want {
			t.Errorf("%q, %v, want %q", text(rows), err, want)
		}
	}
	if n := e.Loads.Load(); n != 1 {
		t.Errorf("the batch was sent %d times", n)
	}
	large := make([]byte, maxBatch/2+1)
	_, _, err = f.RunBatch(t.Context(), "c", []endpoint.Record{{Key: "a", Value: large}, {Key: "b", Value: large}})
	if exactlyonce.KindOf(err) != exactlyonce.TooLarge {
		t.Errorf("a batch that is too large: %v", err)
	}
	_, _, err = f.RunBatch(t.Context(), "c", []endpoint.Record{{Key: "a", Value: make([]byte, maxBatch)}})
	if exactlyonce.KindOf(err) != exactlyonce.Wrong || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("a record that is too large: %v", err)
	}
	if _, err = e.Compile(t.Context(), "SELECT range AS key, repeat('x', 1000000) AS value FROM range(100)"); err == nil ||
		!strings.Contains(err.Error(), "64 MiB") {
		t.Errorf("too many rows: %v", err)
	}
}

// TestHostileAnswer checks that the answer of a process is validated.
func TestHostileAnswer(t *testing.T) {
	for _, a := range []answer{{Lengths: []uint32{1}}, {Lengths: []uint32{1, 0}},
		{Text: []byte("ab"), Lengths: []uint32{1, 3}},
		{Text: []byte("a"), Lengths: []uint32{0xffffffff, 0xffffffff}}, {Next: exactlyonce.Table(make([]byte,
			flow.MaxTable+1))},
		{Lengths: make([]uint32, 2*(flow.MaxRows/flow.RowBytes)+2)}} {
		if rows, err := a.rows(); !errors.Is(err, errWire) {
			t.Errorf("%d rows, %v", len(rows), err)
		}
	}
}

// TestMutatedAnswer checks that a mutated answer of a process yields an answer or an error, but
// never a panic.
func TestMutatedAnswer(t *testing.T) {
	var good bytes.Buffer
	a := answer{Next: "{}", Text: []byte("key and value"), Lengths: []uint32{3, 5, 2, 4}}
	if err := gob.NewEncoder(&good).Encode(a); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := bytes.Clone(good.Bytes())
		for range 1 + rng.IntN(4) {
			text[rng.IntN(len(text))] = byte(rng.Uint32())
		}
		ours, theirs := net.Pipe()
		go func() {
			theirs.Write(text)
			theirs.Close()
		}()
		p := &process{conn: ours, left: &io.LimitedReader{R: ours}}
		p.dec = gob.NewDecoder(p.left)
		var got answer
		if err := p.exchange(t.Context(), nil, &got, 10*time.Second); err == nil {
			got.rows() // the mutated answer may still be valid
		}
		ours.Close()
	}
}

// BenchmarkRecord measures the cost of a record in a trivial flow, as processor time of all
// processes. The batches have 1 or 100 records.
func BenchmarkRecord(b *testing.B) {
	const query = "SELECT key, value FROM src WHERE version > 0"
	type runs interface {
		RunBatch(ctx context.Context, name string, records []endpoint.Record) ([]endpoint.Row, time.Duration, error)
	}
	for _, n := range []int{1, 100} {
		var records []endpoint.Record
		for i := range n {
			records = append(records, endpoint.Record{Key: fmt.Sprint("key", i), Value: make([]byte, 1024),
				Version: uint64(i + 1)})
		}
		measure := func(b *testing.B, f runs, p *process) {
			total := func() (t time.Duration) {
				var u unix.Rusage
				if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
					b.Fatal(err)
				}
				if t = time.Duration(u.Utime.Nano() + u.Stime.Nano()); p != nil {
					t += p.processorTime()
				}
				return t
			}
			begin := total()
			for i := range b.N {
				if rows, _, err := f.RunBatch(b.Context(), fmt.Sprint(i), records); err != nil || len(rows) != n {
					b.Fatal(len(rows), err)
				}
			}
			b.ReportMetric(float64(total()-begin)/float64(b.N*n), "cpu-ns/record")
		}
		b.Run(fmt.Sprintf("records=%d/within", n), func(b *testing.B) {
			f, err := flow.Compile(b.Context(), query)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			b.ResetTimer()
			measure(b, f, nil)
		})
		b.Run(fmt.Sprintf("records=%d/process", n), func(b *testing.B) {
			f, err := Compile(b.Context(), query)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			b.ResetTimer()
			measure(b, f, f.engine.process)
		})
	}
}
