package server

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/racedetector"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/streams/broker"
)

var neighbourFor = flag.Duration("neighbour", 0, "how long TestNeighbour measures, with each attack and before it; 0: a moment, and latencies are not judged")

const (
	neighbourSocket = "NETCRAQ_NEIGHBOUR_SOCKET" // environment variable with the address of the server's process
	// environment variable that tells the attacker's process which attack to run
	neighbourAttack = "NETCRAQ_NEIGHBOUR_ATTACK"
	attackerUID     = 65534
)

// byUser is an authority in which each user is a subject with its own namespace.
type byUser struct{}

func (byUser) Subject(c authority.Caller) string { return fmt.Sprint(c.UID) }
func (byUser) Namespace(_ context.Context, c authority.Caller) (string, error) {
	return fmt.Sprint("of-", c.UID), nil
}
func (byUser) Authorize(context.Context, authority.Caller, authority.Verb, string) error { return nil }

// These are the limits of the memory that the server may hold for all namespaces together.
var (
	neighbourLimits  = Limits{Buffered: 16 << 20, OnceClients: 8192, OnceBytes: 8 << 20}
	neighbourStreams = broker.Limits{Bytes: 32 << 20, AllBytes: 64 << 20}
)

// neighbourConstant is the memory of a server that these limits do not include. It is needed for
// code, garbage on the heap, and each connection.
const neighbourConstant = 96 << 20

func neighbourMost() int64 {
	return neighbourLimits.Buffered + neighbourLimits.OnceBytes + neighbourStreams.AllBytes + neighbourConstant
}

// TestNeighbourServer runs the server of TestNeighbour in a separate process. It ends when its
// input ends.
func TestNeighbourServer(t *testing.T) {
	path := os.Getenv(neighbourSocket)
	if path == "" || os.Getenv(neighbourAttack) != "" {
		t.Skip("TestNeighbour starts it")
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Store: newHubStore(), Namespace: "default", Authority: byUser{}, Limits: neighbourLimits,
		Streams: &broker.Options{Dir: filepath.Join(filepath.Dir(path), "streams"), Limits: neighbourStreams},
		Quotas: authority.NewQuotas(func(subject string) authority.Quota {
			if subject == fmt.Sprint(attackerUID) {
				return authority.Quota{Connections: 64, Watches: 1000, RequestsPerSecond: 1000, Burst: 2000}
			}
			return authority.DefaultQuota
		}, nil)})
	defer s.Close()
	go func() { _ = s.Serve(l) }()
	fmt.Println("listening")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// neighbourAttacks has the messages that each connection of an attacker sends repeatedly, to reach
// one of the limits. If `keep` is true, the attacker keeps the received descriptors open.
var neighbourAttacks = map[string]struct {
	send func(i int) string
	keep bool
}{
	"nothing": {send: func(int) string { time.Sleep(time.Second); return "" }},
	"names":   {send: func(i int) string { return helloOf(i) + "\n" }},
	"answers": {send: func(i int) string {
		if i == 0 {
			return helloOf(1<<20) + "\n"
		}
		return fmt.Sprintf(`{"id":2,"once":%d,"func":"put","data":{"key":"k","value":"%s"}}`+"\n", i, strings.Repeat("v", 500))
	}},
	"half messages": {send: func(i int) string { return `{"id":1,"func":"` + strings.Repeat("x", 200<<10) }},
	"pings":         {send: func(int) string { return `{"id":1,"func":"ping"}` + "\n" }},
	"garbage":       {send: func(int) string { return "garbage\n" }},
	"connections":   {send: func(i int) string { return "" }},
	"watches": {send: func(i int) string {
		return fmt.Sprintf(`{"id":%d,"func":"watch","data":{"keys":["a%d","b%d","c%d"]}}`+"\n", i+1, i, i, i)
	}},
	"files": {send: func(i int) string {
		return fmt.Sprintf(`{"id":%d,"func":"makeFile","data":{"bytes":8388608}}`+"\n"+`{"id":%d,"func":"cancel","data":{"id":%d}}`+"\n",
			2*i+1, 2*i+2, 2*i+1)
	}, keep: true},
	"streams": {send: func(i int) string {
		return fmt.Sprintf(`{"id":%d,"func":"openStream","data":{"stream":"s%d","config":{"partitions":8,"objectBytes":65536,"objects":8}}}`+
			"\n"+`{"id":%d,"func":"subscribe","data":{"stream":"s%d"}}`+"\n"+
			`{"id":%d,"func":"append","data":{"stream":"s%d","records":[{"value":"%s"}]}}`+"\n"+
			`{"id":%d,"func":"deleteStream","data":{"stream":"s%d"}}`+"\n",
			4*i+1, i%70, 4*i+2, i%70, 4*i+3, i%70, strings.Repeat("x", 60_000), 4*i+4, (i+35)%70)
	}, keep: true},
	"getMany": {send: func(i int) string {
		return `{"id":1,"func":"getMany","data":{"keys":["` + strings.Repeat(`a","`, 200) + `b"]}}` + "\n"
	}},
	"appends": {send: func(i int) string {
		if i == 0 {
			return `{"id":1,"func":"openStream","data":{"stream":"full"}}` + "\n"
		}
		return fmt.Sprintf(`{"id":%d,"func":"append","data":{"stream":"full","records":[{"value":"%s"}]}}`+"\n", i+1, strings.Repeat("x", 30_000))
	}},
}

// TestNeighbourAttacker runs an attacker with many connections in a separate process. It ends when
// its input ends.
func TestNeighbourAttacker(t *testing.T) {
	path, name := os.Getenv(neighbourSocket), os.Getenv(neighbourAttack)
	if name == "" {
		t.Skip("TestNeighbour starts it")
	}
	attack := neighbourAttacks[name]
	for range 8 {
		go func() {
			for {
				c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				go func() {
					b, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4*64))
					for {
						var err error
						if attack.keep {
							_, _, _, _, err = c.ReadMsgUnix(b, rights)
						} else {
							_, err = c.Read(b)
						}
						if err != nil {
							return
						}
					}
				}()
				for i := 0; name != "connections" || i == 0; i++ {
					if _, err := c.Write([]byte(attack.send(i))); err != nil {
						time.Sleep(10 * time.Millisecond)
						break
					}
				}
				c.Close()
			}
		}()
	}
	fmt.Println("begun")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// memoryGroup makes a control group for a process, if possible. It returns the files with the
// present and the maximum memory of the group.
func memoryGroup(t *testing.T, pid int) (now, most string) {
	t.Helper()
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] != "memory" {
			continue
		}
		dir := filepath.Join("/sys/fs/cgroup/memory", f[2], fmt.Sprint("netcraq-neighbour-", pid))
		if os.Mkdir(dir, 0o755) != nil || os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) != nil {
			return "", ""
		}
		t.Cleanup(func() { poll.Nil(t, soon, "the group is empty", func() error { return os.Remove(dir) }) })
		return filepath.Join(dir, "memory.usage_in_bytes"), filepath.Join(dir, "memory.max_usage_in_bytes")
	}
	return "", ""
}

// TestNeighbour brings one namespace to each of its limits in turn. Meanwhile another namespace has
// a constant load. No request of that namespace may be refused, and its p99 latency may be at most
// twice the latency just before. The memory of the server must stay below the configured limits
// plus a constant. Server, attacker and load are separate processes.
func TestNeighbour(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for an attacker of another user")
	}
	dir, err := os.MkdirTemp("", "netcraq-neighbour-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "node.sock")
	process := func(test, attack string, uid uint32, says string) (pid int, end func()) {
		t.Helper()
		// Run the program by /proc/self/exe, because another user cannot execute it by its path:
		// only root can enter the folder of go test.
		p := exec.Command("/proc/self/exe", "-test.run", "^"+test+"$")
		p.Env = append(os.Environ(), neighbourSocket+"="+path, neighbourAttack+"="+attack)
		p.Dir = dir
		p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		in, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.Stderr = os.Stderr
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		// Give the attacker the lowest priority, because the test should not measure the scheduler.
		if attack != "" {
			_ = unix.Setpriority(unix.PRIO_PROCESS, p.Process.Pid, 19)
		}
		if text, err := bufio.NewReader(out).ReadString('\n'); text != says+"\n" {
			t.Fatal(text, err)
		}
		return p.Process.Pid, func() { in.Close(); _ = p.Wait() }
	}
	pid, end := process("TestNeighbourServer", "", 0, "listening")
	defer end()
	now, most := memoryGroup(t, pid)
	number := func(file string) int64 {
		text, _ := os.ReadFile(file)
		n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return n
	}
	resident := func() int64 {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		n, _ := strconv.ParseInt(strings.Fields(string(text) + " 0 0")[1], 10, 64)
		return n * int64(os.Getpagesize())
	}
	l := dial(t, path)
	_ = l.SetDeadline(time.Time{})
	l.hello(clientA, false)
	id := 0
	pace, rounds := 5*time.Millisecond, int(*neighbourFor/(5*time.Millisecond))
	if rounds == 0 {
		pace, rounds = time.Millisecond, 40
	}
	// load writes and reads a key 200 times per second, and returns the latencies
	load := func() (p50, p99 time.Duration) {
		t.Helper()
		var took []time.Duration
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for range rounds {
			<-tick.C
			id++
			begin := time.Now()
			l.send(fmt.Sprintf(`{"id":2,"once":%d,"done":%d,"func":"put","data":{"key":"k","value":"v"}}`, id, id))
			l.expectPart(`"version"`)
			l.send(`{"id":3,"func":"get","data":{"key":"k"}}`)
			l.expectPart(`"value":"v"`)
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		return took[len(took)/2], took[len(took)*99/100]
	}
	names := make([]string, 0, len(neighbourAttacks))
	for name := range neighbourAttacks {
		names = append(names, name)
	}
	slices.Sort(names)
	begin := number(now)
	t.Logf("the server begins with %d MiB (control group), %d MiB resident; it may have %d MiB", begin>>20, resident()>>20,
		neighbourMost()>>20)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			_, alone := load()
			_, end := process("TestNeighbourAttacker", name, attackerUID, "begun")
			if *neighbourFor > 0 {
				time.Sleep(time.Second) // give the attacker time to reach the limits
			}
			p50, under := load()
			// Latencies vary on a busy machine, so measure again, each time with and without the
			// attack.
			for again := 0; *neighbourFor > 0 && under > 2*alone && again < 4; again++ {
				end()
				_, alone = load()
				_, end = process("TestNeighbourAttacker", name, attackerUID, "begun")
				time.Sleep(time.Second)
				p50, under = load()
			}
			has, had, rss := number(now), number(most), resident()
			end()
			t.Logf("%-14s p99 %v, alone %v (%.1fx); p50 %v; the server has %d MiB and had %d MiB (control group), %d MiB resident",
				name, under, alone, float64(under)/float64(alone), p50, has>>20, had>>20, rss>>20)
			if *neighbourFor > 0 && under > 2*alone {
				t.Errorf("%s: p99 is %v, and %v alone", name, under, alone)
			}
			if max(had, rss) > neighbourMost() && !racedetector.Enabled {
				t.Errorf("%s: the server had %d MiB, and may have %d MiB", name, max(had, rss)>>20, neighbourMost()>>20)
			}
		})
	}
}
