package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is the folder with the record files. Tests use folders of their own.
var Dir = "/run/netcraq-switch"

// record is the content of a record file.
type record struct {
	Iface  string  `json:"iface"`
	Owners []owner `json:"owners"`
}

// owner is a process that needs a setting off. It is identified by its process id, its start time
// (in clock ticks since the machine started), and the number of its Change.
type owner struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`
	Change uint64 `json:"change"`
}

func (o owner) alive() bool {
	start, err := startOf(o.PID)
	return err == nil && start == o.Start
}

// startOf returns the start time of a process: field 22 of /proc/PID/stat (proc_pid_stat(5)).
func startOf(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// Field 2, the command in parentheses, may contain any characters.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the command", pid, len(fields))
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// namespace returns the inode number of the calling thread's network namespace.
func namespace() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return 0, fmt.Errorf("this thread's network namespace: %w", err)
	}
	return st.Ino, nil
}

var changes atomic.Uint64

// Change is the set of settings that one call of Off turned off. Restore undoes it.
type Change struct {
	name    string
	index   int
	me      owner
	changed []Setting
}

// Off turns off settings of an interface in the calling thread's network namespace. Settings that
// the interface does not have count as off. The Change is never nil. The error names the settings
// that Off could not change or record. Off still changes the other settings.
func Off(name string, index int, which ...Setting) (*Change, error) {
	c := &Change{name: name, index: index, me: owner{PID: os.Getpid(), Change: changes.Add(1)}}
	var err error
	if c.me.Start, err = startOf(c.me.PID); err != nil {
		return c, fmt.Errorf("finding out when this process started: %w", err)
	}
	unlock, err := lock()
	if err != nil { // Without record files, settings stay off if this process is killed.
		for _, s := range which {
			if on, e := IsOn(name, s); e == nil && on {
				err = errors.Join(err, set(name, s, false))
			}
		}
		return c, err
	}
	defer unlock()
	var errs []error
	for _, s := range which {
		if err := c.off(s); err != nil {
			errs = append(errs, err)
		}
	}
	return c, errors.Join(errs...)
}

func (c *Change) off(s Setting) error {
	path, err := pathOf(c.index, s)
	if err != nil {
		return err
	}
	r, known := read(path)
	on, err := IsOn(c.name, s)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", s, c.name, err)
	}
	if !on && (!known || r.Iface != c.name) {
		return nil // The setting was already off before any switch started.
	}
	r.Iface, r.Owners = c.name, append(aliveOwners(r.Owners), c.me)
	if err := write(path, r); err != nil {
		return err
	}
	c.changed = append(c.changed, s)
	if !on {
		return nil
	}
	return set(c.name, s, false)
}

// Restore turns on the settings that were on before, unless another process needs them off. It must
// be called in the network namespace of Off. If the interface no longer exists, Restore does
// nothing.
func (c *Change) Restore() error {
	if c == nil || len(c.changed) == 0 {
		return nil
	}
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	// The order is reversed, because a setting that depends on another setting was turned off
	// first.
	for _, s := range slices.Backward(c.changed) {
		path, err := pathOf(c.index, s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r, known := read(path)
		if !known {
			continue
		}
		var rest []owner
		for _, o := range aliveOwners(r.Owners) {
			if o != c.me {
				rest = append(rest, o)
			}
		}
		r.Owners = rest
		errs = append(errs, restoreUnused(path, r, c.index, s))
	}
	c.changed = nil
	return errors.Join(errs...)
}

// Recover cleans up after processes that have ended. It restores settings of interfaces in all
// network namespaces that it can find. It also removes filters in the calling thread's network
// namespace.
func Recover() error {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	here, err := namespace()
	if err != nil {
		return err
	}
	files, err := os.ReadDir(Dir)
	if err != nil {
		return fmt.Errorf("looking for what dead switches left: %w", err)
	}
	errs := []error{removeAllFilters()}
	for _, f := range files {
		ns, rest, _ := strings.Cut(f.Name(), "-")
		number, setting, ok := strings.Cut(rest, "-")
		index, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		path := filepath.Join(Dir, f.Name())
		r, known := read(path)
		if !known {
			continue
		}
		r.Owners = aliveOwners(r.Owners)
		if len(r.Owners) > 0 {
			continue
		}
		undo := func() error { return restoreUnused(path, r, index, Setting(setting)) }
		if ns == strconv.FormatUint(here, 10) {
			errs = append(errs, undo())
		} else if there, found := find(ns); found {
			errs = append(errs, enter(there, undo))
		} else {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// restoreUnused turns a setting on again if no process needs it off, and updates the record file.
func restoreUnused(path string, r record, index int, s Setting) error {
	if len(r.Owners) > 0 {
		return write(path, r)
	}
	// If the index differs, a different interface has this name now.
	if l, err := net.InterfaceByName(r.Iface); err == nil && l.Index == index {
		if err := set(r.Iface, s, true); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("forgetting a setting that is as it was: %w", err)
	}
	return nil
}

// find returns a file that refers to the network namespace with this inode number. It searches the
// namespaces of processes, and the named namespaces.
func find(ns string) (path string, found bool) {
	for _, pattern := range []string{"/run/netns/*", "/proc/[0-9]*/ns/net"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, p := range paths {
			var st unix.Stat_t
			if unix.Stat(p, &st) == nil && strconv.FormatUint(st.Ino, 10) == ns {
				return p, true
			}
		}
	}
	return "", false
}

// enter runs f on a thread in another network namespace.
func enter(path string, f func() error) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	defer ns.Close()
	done := make(chan error, 1)
	go func() {
		// The goroutine never unlocks the thread, so the thread ends with it.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering a network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

func aliveOwners(all []owner) []owner {
	var out []owner
	for _, o := range all {
		if o.alive() {
			out = append(out, o)
		}
	}
	return out
}

func pathOf(index int, s Setting) (string, error) {
	ns, err := namespace()
	if err != nil {
		return "", err
	}
	return filepath.Join(Dir, fmt.Sprintf("%d-%d-%s", ns, index, s)), nil
}

// lock gives this process exclusive access to the record files.
func lock() (unlock func(), err error) {
	if err := os.MkdirAll(Dir, 0o700); err != nil {
		return nil,
			fmt.Errorf("a directory for the settings that are changed, so that they can be "+
				"undone after a crash: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(Dir, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC,
		0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the records of changed settings: %w", err)
	}
	return func() { f.Close() }, nil
}

func read(path string) (record, bool) {
	var r record
	b, err := os.ReadFile(path)
	return r, err == nil && json.Unmarshal(b, &r) == nil
}

// write replaces a record's file atomically.
func write(path string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	temporary := path + ".new"
	if err := errors.Join(os.WriteFile(temporary, b, 0o600),
		os.Rename(temporary, path)); err != nil {
		return fmt.Errorf("recording a setting that is about to change: %w", err)
	}
	return nil
}
