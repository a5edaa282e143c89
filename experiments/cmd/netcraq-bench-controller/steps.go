package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// prefix is that of the state in etcd.
const prefix = "/bench/"

// quiet is how long no table entry has been written when everything counts as written.
const quiet = 3 * time.Second

func (b *bench) writeTopology() error {
	text, err := yaml.Marshal(b.f.spec)
	if err != nil {
		return err
	}
	var file map[string]any
	if err := yaml.Unmarshal(text, &file); err != nil {
		return err
	}
	if text, err = yaml.Marshal(without(file)); err != nil {
		return err
	}
	return os.WriteFile(b.topology, text, 0o600)
}

// without returns a file's content without the fields that are not set. An empty list of ports, for
// example, is not the same as no list.
func without(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if field = without(field); field == nil {
				delete(v, name)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for _, element := range v {
			without(element)
		}
	case string:
		if v == "" {
			return nil
		}
	}
	return v
}

// startController starts another controller of the network.
func (b *bench) startController(events io.Writer) (*process, error) {
	socket := filepath.Join(b.dir, fmt.Sprintf("admin%d.sock", len(b.all)))
	return b.runTo(events, b.o.controller, "--topology", b.topology, "--etcd", b.etcd, "--etcd-prefix", prefix,
		"--admin", "unix://"+socket)
}

func since(t time.Time) float64 { return time.Since(t).Seconds() }

func (b *bench) start(ctx context.Context) error {
	began := time.Now()
	b.events = newEvents(b.o.log)
	var err error
	if b.leader, err = b.startController(b.events); err != nil {
		return err
	}
	if err := b.leader.until(ctx, "ready:"); err != nil {
		return err
	}
	b.r.Ready = since(began)
	s, err := b.settle(ctx)
	if err != nil {
		return err
	}
	b.r.Writes = s.Writes
	b.r.Filled = since(began) - float64(s.QuietMillis)/1000
	cpu, err := b.leader.cpu()
	b.r.FillCPU = cpu.Seconds()
	return err
}

// settle waits until nothing has been written to any switch for a while.
func (b *bench) settle(ctx context.Context) (state, error) {
	for {
		s, err := b.tell(command{Do: "state"})
		if err != nil || s.QuietMillis >= quiet.Milliseconds() {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("the switches are still written to: %w", context.Cause(ctx))
		case <-time.After(quiet / 10):
		}
	}
}

// watch makes the switches read the leases of all members but one.
func (b *bench) watch(without int) error {
	c := command{Do: "watch"}
	for i := range b.f.spec.Chains {
		for _, m := range b.f.members(i) {
			if m != without {
				c.Watch = append(c.Watch, [2]int{m, i})
			}
		}
	}
	_, err := b.tell(c)
	return err
}

func (b *bench) rest(ctx context.Context) error {
	if err := b.watch(0); err != nil {
		return err
	}
	began := time.Now()
	before, err := b.leader.cpu()
	if err != nil {
		return err
	}
	switchesBefore, err := b.switches.cpu()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(b.o.rest):
	}
	b.r.RestSeconds = since(began)
	after, err := b.leader.cpu()
	if err != nil {
		return err
	}
	switchesAfter, err := b.switches.cpu()
	if err != nil {
		return err
	}
	b.r.RestCPU = (after - before).Seconds() / b.r.RestSeconds
	b.r.SwitchesCPU = (switchesAfter - switchesBefore).Seconds() / b.r.RestSeconds
	if b.r.Memory, err = b.leader.memory(); err != nil {
		return err
	}
	s, err := b.tell(command{Do: "state"})
	b.r.Looks, b.r.Expired = s.Looks, s.Expired
	return err
}

// failover kills a core switch, and starts it again.
func (b *bench) failover(ctx context.Context) error {
	const victim = 1
	used := map[string]bool{}
	for i := range b.f.spec.Chains {
		if slices.Contains(b.f.members(i), victim) {
			used[chainName(i)] = true
		}
	}
	b.r.Used = len(used)
	if err := b.watch(victim); err != nil {
		return err
	}
	began := time.Now()
	b.events.expect("chain.installed", used)
	if _, err := b.tell(command{Do: "kill", Switch: victim}); err != nil {
		return err
	}
	times, err := b.events.wait(ctx, began)
	if err != nil {
		return err
	}
	b.r.FailoverFirst, b.r.Failover, b.r.FailoverLast = times[0], times[len(times)/2], times[len(times)-1]
	if _, err := b.settle(ctx); err != nil {
		return err
	}
	s, err := b.tell(command{Do: "state"})
	if err != nil {
		return err
	}
	b.r.FailoverLooks, b.r.FailoverExpired = s.Looks, s.Expired
	began = time.Now()
	b.events.expect("chain.full", used)
	if _, err := b.tell(command{Do: "start", Switch: victim}); err != nil {
		return err
	}
	if times, err = b.events.wait(ctx, began); err != nil {
		return err
	}
	b.r.Back = times[len(times)-1]
	_, err = b.settle(ctx)
	return err
}

// takeover kills the leader while another controller stands by.
func (b *bench) takeover(ctx context.Context) error {
	next, err := b.startController(newEvents(b.o.log))
	if err != nil {
		return err
	}
	if err := next.until(ctx, "standing by"); err != nil {
		return err
	}
	time.Sleep(quiet) // so that it watches the leader
	began := time.Now()
	b.leader.kill()
	b.leader = next
	if err := next.until(ctx, "ready:"); err != nil {
		return err
	}
	b.r.Takeover = since(began)
	_, err = b.settle(ctx)
	return err
}

// restart ends the leader in order and starts a controller.
func (b *bench) restart(ctx context.Context) error {
	b.leader.stop()
	began := time.Now()
	var err error
	if b.leader, err = b.startController(newEvents(b.o.log)); err != nil {
		return err
	}
	if err := b.leader.until(ctx, "ready:"); err != nil {
		return err
	}
	b.r.Restart = since(began)
	return nil
}

// events reads a controller's log for the events that are expected.
type events struct {
	log *os.File // nil: none is kept

	mu      sync.Mutex
	part    string // of a line
	kind    string
	waiting map[string]bool // chains
	times   []time.Time
	done    chan struct{}
}

func newEvents(log string) *events {
	e := &events{done: make(chan struct{})}
	if log != "" {
		e.log, _ = os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	return e
}

// expect begins to wait for an event of each of some chains.
func (e *events) expect(kind string, chains map[string]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kind, e.times, e.done, e.waiting = kind, nil, make(chan struct{}), map[string]bool{}
	for c := range chains {
		e.waiting[c] = true
	}
}

// wait returns when each chain's event came, in seconds since a time, in order.
func (e *events) wait(ctx context.Context, since time.Time) (out []float64, err error) {
	select {
	case <-e.done:
	case <-ctx.Done():
		e.mu.Lock()
		defer e.mu.Unlock()
		return nil, fmt.Errorf("%d chains have not reported %s: %w", len(e.waiting), e.kind, context.Cause(ctx))
	}
	for _, t := range e.times {
		out = append(out, t.Sub(since).Seconds())
	}
	return out, nil
}

var eventLine = regexp.MustCompile(`event=(\S+) (?:.* )?chain=(\S+)`)

// Write implements io.Writer for the controller's log.
func (e *events) Write(b []byte) (int, error) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.log != nil {
		_, _ = e.log.Write(b)
	}
	lines := strings.Split(e.part+string(b), "\n")
	e.part = lines[len(lines)-1]
	for _, l := range lines[:len(lines)-1] {
		m := eventLine.FindStringSubmatch(l + " ")
		if m == nil || m[1] != e.kind || !e.waiting[m[2]] {
			continue
		}
		delete(e.waiting, m[2])
		if e.times = append(e.times, now); len(e.waiting) == 0 {
			close(e.done)
		}
	}
	return len(b), nil
}
