package clock

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// The clocks' numbers in Linux' time.h.
const monotonic, monotonicRaw = 1, 4

// TestNow: it runs as time does.
func TestNow(t *testing.T) {
	began, from := time.Now(), Now()
	time.Sleep(20 * time.Millisecond)
	if took := Since(from); took < 20*time.Millisecond || took > time.Since(began) {
		t.Errorf("%v of %v", took, time.Since(began))
	}
	if Since(from.Add(time.Hour)) > -50*time.Minute {
		t.Error("an hour later is not later")
	}
}

// TestSuspendedMeanwhile: a suspension shows at the first look after it, as the wall's clock is set
// by it; one that does not show there is found a moment later.
func TestSuspendedMeanwhile(t *testing.T) {
	right := func() bool {
		before := system()
		now := time.Duration(Now())
		return before-time.Millisecond <= now && now <= system()+time.Millisecond
	}
	for i := range 1000 {
		if !right() {
			t.Fatalf("look %d: the clock is %v, not %v", i, time.Duration(Now()), system())
		}
	}
	r := *last.Load()
	r.wall, r.offset = r.wall-time.Hour, r.offset-time.Hour // as it was before an hour of sleep
	last.Store(&r)
	if !right() {
		t.Error("an hour of sleep is not noticed")
	}
	r = *last.Load()
	r.offset -= time.Hour // somebody has set the wall's clock back by as much
	last.Store(&r)
	time.Sleep(readAgain)
	if !right() {
		t.Error("an hour of sleep is not noticed where the wall's clock was set back")
	}
}

// TestForward: many at once see it go forward. (It is as exact as it could be read, which is less
// so on a busy machine.)
func TestForward(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for end, before := time.Now().Add(50*time.Millisecond), Now(); time.Now().Before(end); {
				now := Now()
				if now < before.Add(-time.Millisecond) {
					t.Errorf("it went back by %v", time.Duration(before-now))
					return
				}
				before = now
			}
		})
	}
	all.Wait()
}

// TestReadBadly: a time that was read too high, because something came between two looks, does not
// let the clock go back at the next look.
func TestReadBadly(t *testing.T) {
	Now()
	old := *last.Load()
	defer last.Store(&old)
	r := old
	r.offset += 5 * time.Millisecond
	last.Store(&r)
	before := Now()
	time.Sleep(2 * readAgain)
	if d := Since(before); d < 2*readAgain {
		t.Errorf("%v of %v: it went back", d, 2*readAgain)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}

func BenchmarkRaw(b *testing.B) {
	for b.Loop() {
		Raw()
	}
}

// TestRaw: it is the kernel's CLOCK_MONOTONIC_RAW.
func TestRaw(t *testing.T) {
	for last := Raw(); ; {
		before, now, after := clock(monotonicRaw), Raw(), clock(monotonicRaw)
		if now < before || now > after {
			t.Fatalf("%v, between %v and %v", now, before, after)
		}
		if now-last > 20*time.Millisecond {
			return
		}
	}
}

// TestGoesOnWhileSuspended: a machine cannot be suspended here, but a process can be shown one that
// was: in a time namespace whose clock of the time since the boot is 1,000 hours further, and the
// monotonic one is not.
func TestGoesOnWhileSuspended(t *testing.T) {
	if os.Getenv("NETCRAQ_BOOTTIME") != "" {
		fmt.Println("asleep for", (time.Duration(Now()) - clock(monotonic)).Round(time.Hour))
		return
	}
	if out, err := exec.Command("unshare", "--time", "true").CombinedOutput(); err != nil {
		t.Skipf("a time namespace takes root and Linux 5.6: %v\n%s", err, out)
	}
	before := (time.Duration(Now()) - clock(monotonic)).Round(time.Hour) // this machine may have been suspended, too
	cmd := exec.Command("unshare", "--time", "--boottime", "3600000", os.Args[0], "-test.run=^TestGoesOnWhileSuspended$")
	cmd.Env = append(os.Environ(), "NETCRAQ_BOOTTIME=1")
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprint("asleep for ", before+1000*time.Hour); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: the clock is another than that of the time since the boot: it does not say %q but\n%s", err, want, out)
	}
}
