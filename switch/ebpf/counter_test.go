package ebpf

import (
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

// TestCountersLoseNothing counts on all CPUs at once and meanwhile sets the counter. Afterwards the
// counter must be exactly the set value plus the number of later packets.
func TestCountersLoseNothing(t *testing.T) {
	const each, name = 1_000_000, "NetcraqIngress.pipeline.events"
	d := newTestDevice(t)
	if err := d.Commit(netcraq(t, 128)); err != nil {
		t.Fatal(err)
	}
	d.PortMap.SetPort(memory.Loopback, 1) // The kernel runs the program on the loopback interface.
	p := d.pipeline
	k := p.Prog.Counter(name)
	if got := p.Counters[k.Index].CPUs; got < runtime.NumCPU() {
		t.Fatalf("the counter has %d copies for %d CPUs", got, runtime.NumCPU())
	}
	sum := func() (sum target.CounterData) {
		for i := range k.Size {
			c, err := p.ReadCounter(name, i)
			if err != nil {
				t.Fatal(err)
			}
			sum.Packets, sum.Bytes = sum.Packets+c.Packets, sum.Bytes+c.Bytes
		}
		return sum
	}
	frame := make([]byte, 100) // not an IPv4 packet: the program counts it and drops it unchanged
	var done sync.WaitGroup
	begin := make(chan struct{})
	run := func(cpu int) {
		// The goroutine never unlocks the thread, so the thread ends with it.
		runtime.LockOSThread()
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			t.Error(err)
		}
		<-begin
		if _, err := p.TC.Run(&ebpf.RunOptions{Data: frame, Repeat: each}); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.TC.Run(&ebpf.RunOptions{Data: frame, Repeat: 3}); err != nil {
		t.Fatal(err)
	}
	if got := sum(); got.Packets != 3 || got.Bytes != 300 {
		t.Fatalf("3 packets of 100 bytes are counted as %+v", got)
	}
	for i := range k.Size {
		if err := p.WriteCounter(name, i, target.CounterData{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := sum(); got != (target.CounterData{}) {
		t.Fatalf("set to 0, the counter says %+v", got)
	}
	for cpu := range runtime.NumCPU() {
		done.Go(func() { run(cpu) })
	}
	close(begin)
	done.Wait()
	want := uint64(each * runtime.NumCPU())
	if got := sum(); got.Packets != want || got.Bytes != 100*want {
		t.Errorf("%d packets of 100 bytes are counted as %+v", want, got)
	}
	if err := p.WriteCounter(name, 0, target.CounterData{Packets: 7, Bytes: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	if got, _ := p.ReadCounter(name, 0); got.Packets != 7 || got.Bytes != 1<<40 {
		t.Errorf("set to 7 packets and 2^40 bytes, it says %+v", got)
	}
}
