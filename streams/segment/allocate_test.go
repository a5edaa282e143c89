package segment

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAllocate checks that a file gets memory for its whole size, in any number of steps. It also
// checks that allocate fails if there is not enough memory.
func TestAllocate(t *testing.T) {
	for _, size := range []int64{1, 4096, allocateStep - 1, allocateStep, allocateStep + 1, 3*allocateStep + 5000} {
		f, err := create("netcraq-test", int(size))
		if err != nil {
			t.Fatal(err)
		}
		if err := allocate(f, size); err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() != size || got < size {
			t.Errorf("a file of %d bytes has %d, and memory for %d", size, info.Size(), got)
		}
		f.Close()
	}
	f, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := allocate(f, 1); err != unix.ENODEV {
		t.Errorf("a device: %v", err)
	}
}
