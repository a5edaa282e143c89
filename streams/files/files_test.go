package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/streams/segment"
)

// world is a manager whose namespaces have 100 bytes of memory each, and 150 bytes altogether.
type world struct {
	*Manager
	each map[string]int64
	all  int64
}

func newWorld(l Limits) *world {
	w := &world{each: map[string]int64{}}
	w.Manager = New(l, func(ns string, bytes int64) error {
		switch {
		case w.each[ns]+bytes > 100:
			return nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "", "no room in the namespace")
		case w.all+bytes > 150:
			return errors.Join(nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "", "no room"), ErrServerFull)
		}
		w.each[ns] += bytes
		w.all += bytes
		return nil
	}, func(ns string, bytes int64, r *segment.Remains) {
		w.each[ns] -= bytes
		w.all -= bytes
		r.Close()
	})
	return w
}

func (w *world) make(t *testing.T, ns string, bytes int64, key string) *File {
	t.Helper()
	f, err := w.Make(ns, bytes, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Seal(ns, f.Name, key); err != nil {
		t.Fatal(err)
	}
	return f
}

// is reports whether a file with the key exists, without keeping a hold of the file.
func (w *world) is(t *testing.T, ns, key string) bool {
	t.Helper()
	f, giveUp, err := w.Find(t.Context(), ns, key)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		giveUp()
		return false
	}
	f.Release()
	return true
}

// TestEviction checks that the manager evicts unused files when memory is needed, in the order of
// their last use. It never evicts files in use.
func TestEviction(t *testing.T) {
	w := newWorld(Limits{})
	a, b := w.make(t, "x", 40, "a"), w.make(t, "x", 40, "b")
	if _, err := w.Make("x", 40, false); err == nil {
		t.Fatal("there is memory, where all is held")
	}
	a.Release()
	b.Release()
	if !w.is(t, "x", "a") { // this lookup makes "a" more recently used than "b"
		t.Fatal("what has a key is gone while there is memory")
	}
	c := w.make(t, "x", 40, "c")
	if w.is(t, "x", "b") || !w.is(t, "x", "a") {
		t.Error("not the one was given up that was not asked for for the longest time")
	}
	// The namespace y has memory left, but the server does not. So the manager evicts an unused
	// file of x.
	d := w.make(t, "y", 90, "")
	if w.is(t, "x", "a") || !w.is(t, "x", "c") {
		t.Error("what others do not use stays, or what they use does not")
	}
	if _, err := w.Make("y", 20, false); err == nil {
		t.Error("a namespace has more than it may")
	}
	c.Release()
	d.Release()
	if w.Close(); w.all != 0 || len(w.files)+len(w.keys)+w.idle.Len()+len(w.Manager.each) != 0 {
		t.Errorf("%d bytes and %d files are left", w.all, len(w.files))
	}
}

func TestBounds(t *testing.T) {
	w := newWorld(Limits{Each: 3, All: 4})
	for _, bytes := range []int64{0, -1, nodeapi.MaxFileBytes + 1} {
		if _, err := w.Make("x", bytes, false); err == nil {
			t.Errorf("a file of %d bytes", bytes)
		}
	}
	for i := range 3 {
		w.make(t, "x", 1, fmt.Sprint(i)).Release()
	}
	f := w.make(t, "x", 1, "new") // this call evicts the first file
	if w.is(t, "x", "0") {
		t.Error("there are more files than there may be")
	}
	w.make(t, "y", 1, "")
	if _, err := w.Make("y", 1, false); err != nil { // this call evicts a file of the namespace x
		t.Error(err)
	}
	if _, err := w.Make("z", 1, false); err != nil {
		t.Error(err)
	}
	if _, err := w.Make("z", 1, false); err == nil {
		t.Error("there are more files than the server may have, and all are held")
	}
	f.Release()
}

// draft makes a file of 64 bytes that is not sealed, and maps it. The caller must unmap it.
func (w *world) draft(t *testing.T, rewritable bool) (*File, []*os.File, []byte) {
	t.Helper()
	f, err := w.Make("x", 64, rewritable)
	if err != nil {
		t.Fatal(err)
	}
	draft, err := f.Draft()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		draft[0].Close()
		draft[1].Close()
	})
	b, err := unix.Mmap(int(draft[0].Fd()), 0, 64, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return f, draft, b
}

// TestSeal checks that no program can write to a sealed file. Even the maker cannot, with
// descriptors and mappings from before. Sealing fails while the maker could still write to the
// file.
func TestSeal(t *testing.T) {
	w := newWorld(Limits{})
	f, draft, b := w.draft(t, false)
	if err := w.Seal("x", f.Name, ""); err == nil {
		t.Fatal("sealed while somebody writes")
	}
	copy(b, "hello")
	if err := unix.Munmap(b); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Hold("x", f.Name); err == nil {
		t.Error("what is not sealed is found")
	}
	if err := w.Seal("y", f.Name, ""); err == nil {
		t.Error("sealed by another namespace")
	}
	if err := w.Seal("x", f.Name, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.Seal("x", f.Name, ""); err == nil {
		t.Error("sealed twice")
	}
	if _, err := f.Draft(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("there is a descriptor to write by: %v", err)
	}
	for i, d := range draft {
		if _, err := d.WriteAt([]byte("x"), 0); err == nil {
			t.Errorf("%d: written to", i)
		}
		if _, err := unix.Mmap(int(d.Fd()), 0, 64, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Errorf("%d: mapped for writing", i)
		}
		for _, n := range []int64{0, 65} {
			if err := d.Truncate(n); err == nil {
				t.Errorf("%d: it has %d bytes now", i, n)
			}
		}
		if err := unix.Fallocate(int(d.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 64); err == nil {
			t.Errorf("%d: it has a hole", i)
		}
	}
	if again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", draft[1].Fd()), os.O_RDWR, 0); err == nil {
		if _, err := again.Write([]byte("x")); err == nil {
			t.Error("opened anew, and written to")
		}
		again.Close()
	}
	got := make([]byte, 5)
	if _, err := draft[1].ReadAt(got, 0); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	f.Release()
	if _, err := w.Hold("x", f.Name); err == nil || w.all != 0 {
		t.Error("what nobody holds is there")
	}
}

// TestSealedByTheMaker checks that a file is unusable if its maker applied seals itself, which
// prevents the server from sealing it.
func TestSealedByTheMaker(t *testing.T) {
	w := newWorld(Limits{})
	f, _ := w.Make("x", 64, false)
	draft, err := f.Draft()
	if err != nil {
		t.Fatal(err)
	}
	defer draft[0].Close()
	defer draft[1].Close()
	if _, err := unix.FcntlInt(draft[0].Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL); err != nil {
		t.Fatal(err)
	}
	if err := w.Seal("x", f.Name, "k"); err == nil {
		t.Error("it counts as sealed")
	}
	if _, err := w.Hold("x", f.Name); err == nil || w.is(t, "x", "k") {
		t.Error("it is found")
	}
}

// TestClaims checks that only one of several callers that want a key makes the file. If this caller
// gives up, the next caller makes it. A caller whose context has ended does not wait.
func TestClaims(t *testing.T) {
	w := newWorld(Limits{})
	_, giveUp, err := w.Find(t.Context(), "x", "k")
	if err != nil || giveUp == nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := w.Find(ctx, "x", "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("waited: %v", err)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	makers := 0
	for range 8 {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			f, giveUp, err := w.Find(ctx, "x", "k")
			if err != nil {
				t.Error(err)
				return
			}
			if f != nil {
				f.Release()
				return
			}
			defer giveUp()
			mu.Lock()
			makers++
			first := makers == 1
			mu.Unlock()
			if !first { // the first caller gives up, as if its program had died
				w.make(t, "x", 10, "k").Release()
			}
		})
	}
	giveUp()
	wait.Wait()
	if makers != 2 {
		t.Errorf("%d were to make it", makers)
	}
	if f, _, hits, misses, _ := w.Count(); f != 1 || hits != 6 || misses != 3 {
		t.Errorf("%d files, %d found, %d not", f, hits, misses)
	}
	// The same key in another namespace is a different key.
	if w.is(t, "y", "k") {
		t.Error("a namespace finds what is another's")
	}
}

// TestRewritable checks that a program that mapped a rewritable file before it was sealed can still
// write to it. No other program can begin to write with any descriptor, or remove memory from the
// file.
func TestRewritable(t *testing.T) {
	w := newWorld(Limits{})
	f, draft, b := w.draft(t, true)
	defer func() { _ = unix.Munmap(b) }()
	if _, err := w.Hold("x", f.Name); err == nil {
		t.Error("what is not sealed is found")
	}
	if err := w.Seal("x", f.Name, "k"); err == nil {
		t.Error("what does not stay has a key")
	}
	if err := w.Seal("x", f.Name, ""); err != nil {
		t.Fatal(err)
	}
	copy(b, "hello")
	got := make([]byte, 5)
	if _, err := draft[1].ReadAt(got, 0); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", draft[1].Fd()), os.O_RDWR, 0)
	if err != nil {
		again = draft[1]
	}
	defer again.Close()
	for i, d := range []*os.File{draft[0], draft[1], again} {
		if _, err := d.WriteAt([]byte("x"), 0); err == nil {
			t.Errorf("%d: written to", i)
		}
		if _, err := unix.Mmap(int(d.Fd()), 0, 64, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Errorf("%d: mapped for writing", i)
		}
		if m, err := unix.Mmap(int(d.Fd()), 0, 64, unix.PROT_READ, unix.MAP_SHARED); err != nil {
			t.Errorf("%d: not mapped for reading: %v", i, err)
		} else {
			if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE); err == nil {
				t.Errorf("%d: a mapping for reading became one for writing", i)
			}
			_ = unix.Munmap(m)
		}
		for _, n := range []int64{0, 65} {
			if err := d.Truncate(n); err == nil {
				t.Errorf("%d: it has %d bytes now", i, n)
			}
		}
		if err := unix.Fallocate(int(d.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 64); err == nil {
			t.Errorf("%d: it has a hole", i)
		}
	}
}

// TestFree checks that a rewritable file is free while no record refers to it, even if programs
// hold it.
func TestFree(t *testing.T) {
	w := newWorld(Limits{})
	rewritable := func() *File {
		f, err := w.Make("x", 10, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Seal("x", f.Name, ""); err != nil {
			t.Fatal(err)
		}
		return f
	}
	a, b := rewritable(), rewritable()
	names := []string{a.Name, b.Name}
	free := func(most time.Duration) string {
		t.Helper()
		got, err := w.Free(t.Context(), "x", names, most)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(got)
	}
	if got := free(0); got != fmt.Sprint(names) {
		t.Errorf("free: %s", got)
	}
	first, err := w.HoldAll("x", names)
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.HoldAll("x", names[:1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.HoldAll("x", []string{b.Name, "none"}); err == nil {
		t.Error("held what is not there")
	}
	if got := free(0); got != "[]" {
		t.Errorf("free: %s", got)
	}
	waited := make(chan string)
	go func() { waited <- free(time.Minute) }()
	first[0].ReleaseRecord() // after this release, another record still refers to the file a
	first[1].ReleaseRecord()
	if got := <-waited; got != fmt.Sprint(names[1:]) {
		t.Errorf("free: %s", got)
	}
	second[0].ReleaseRecord()
	if got := free(time.Minute); got != fmt.Sprint(names) {
		t.Errorf("free: %s", got)
	}
	sealed := w.make(t, "x", 10, "")
	for _, name := range []string{sealed.Name, "none"} {
		if _, err := w.Free(t.Context(), "x", []string{a.Name, name}, 0); err == nil {
			t.Errorf("%s: no rewritable file, and free", name)
		}
	}
	if _, err := w.Free(t.Context(), "y", names, 0); err == nil {
		t.Error("another namespace's is free")
	}
	for _, f := range []*File{a, b, sealed} {
		f.Release()
	}
	if w.all != 0 {
		t.Errorf("%d bytes are left", w.all)
	}
}
