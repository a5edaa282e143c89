package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/client/node"
)

// programs are the programs of `testpod program`. A program uses the node API through the library,
// as an ordinary pod does. It prints events, one JSON object per line. Times are in seconds on the
// machine's clock, which all pods share. program.py and program.mjs have the first two programs as
// well, and program.py also has the last two.
var programs = map[string]func(ctx context.Context, c *node.Client, args []string) error{
	"basics":   basics,
	"hold":     hold,
	"lead":     lead,
	"load":     load,
	"instance": instance,
	"call":     call,
	"follow":   follow,
	"spy":      spy,
}

func program(args []string) error {
	if len(args) == 0 || programs[args[0]] == nil {
		return fmt.Errorf("program takes one of %v", slices.Sorted(maps.Keys(programs)))
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	c, err := node.Connect(ctx, node.Config{})
	if err != nil {
		return err
	}
	return programs[args[0]](ctx, c, args[1:])
}

// say prints an event. Several goroutines may call it at once.
func say(event map[string]any) {
	b, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(b, '\n'))
}

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

func seconds(text string) (time.Duration, error) {
	f, err := strconv.ParseFloat(text, 64)
	return time.Duration(f * float64(time.Second)), err
}

// kill ends another process of the container. With KILL, the process has no time to clean up.
func kill(args []string) error {
	by, known := map[string]syscall.Signal{"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM}, false
	var s syscall.Signal
	if len(args) == 2 {
		s, known = by[args[1]]
	}
	if !known {
		return errors.New("kill takes a process, and KILL or TERM")
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	at := now()
	if err := syscall.Kill(pid, s); err != nil {
		return err
	}
	say(map[string]any{"killed": pid, "at": at})
	return nil
}

// basics KEY OTHER puts, gets and watches a key, and tries to read a key of another namespace.
func basics(ctx context.Context, c *node.Client, args []string) error {
	if len(args) != 2 {
		return errors.New("basics takes a key and another namespace")
	}
	key, other := args[0], args[1]
	w, err := c.Watch(ctx, node.WatchConfig{Keys: []string{key}})
	if err != nil {
		return err
	}
	defer w.Close()
	var last string
	for i := range 5 {
		last = fmt.Sprint("value ", i)
		if _, err := c.Put(ctx, key, []byte(last)); err != nil {
			return err
		}
	}
	got, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	events, overtaken, version := 0, uint64(0), node.Version("")
	for version != got.Version {
		e, err := w.Next(ctx)
		if err != nil {
			return err
		}
		events, overtaken, version = events+1, overtaken+e.Overtaken, e.Version
	}
	refused := []string{}
	for _, f := range []func() error{
		func() error { _, err := c.Get(ctx, key, node.In(other)); return err },
		func() error { _, err := c.Put(ctx, key, []byte("forged"), node.In(other)); return err },
		func() error { _, err := c.Lock(ctx, key, node.In(other), node.Wait(0)); return err },
	} {
		err := f()
		if err == nil {
			err = errors.New("it was done")
		}
		refused = append(refused, fmt.Sprint(node.CodeOf(err), ": ", err))
	}
	say(map[string]any{"put": last, "got": string(got.Value), "events": events, "overtaken": overtaken, "refused": refused})
	return nil
}

// hold NAME TTL keep|release acquires a lock. With keep, it holds the lock until the process is
// killed. With release, it releases the lock at once.
func hold(ctx context.Context, c *node.Client, args []string) error {
	if len(args) != 3 {
		return errors.New("hold takes a name, a time to live, and keep or release")
	}
	ttl, err := seconds(args[1])
	if err != nil {
		return err
	}
	say(map[string]any{"waiting": true, "pid": os.Getpid()})
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	l, err := c.Lock(waiting, args[0], node.TTL(ttl))
	if err != nil {
		return err
	}
	say(map[string]any{"token": strconv.FormatUint(l.Token(), 10), "at": now()})
	if args[2] == "keep" {
		<-ctx.Done()
	}
	return l.Release(context.WithoutCancel(ctx))
}

// lead NAME TTL SECONDS campaigns, and leads whenever it is elected, until SECONDS have passed.
func lead(ctx context.Context, c *node.Client, args []string) error {
	if len(args) != 3 {
		return errors.New("lead takes a name, a time to live and for how long")
	}
	ttl, err := seconds(args[1])
	if err != nil {
		return err
	}
	long, err := seconds(args[2])
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	say(map[string]any{"candidate": host, "at": now()})
	for ctx.Err() == nil {
		l, err := c.Campaign(ctx, args[0], host, node.TTL(ttl))
		if err != nil {
			say(map[string]any{"trouble": err.Error(), "at": now()})
			time.Sleep(50 * time.Millisecond)
			continue
		}
		token := strconv.FormatUint(l.Token(), 10)
		say(map[string]any{"leads": token, "from": now()})
		select {
		case <-l.Lost():
		case <-ctx.Done():
		}
		say(map[string]any{"led": token, "until": now()})
		release, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		// the lease may be lost, and another client may already be the leader
		_ = l.Release(release)
		done()
	}
	return nil
}

const loaders = 4

// load KEY SECONDS PATIENCE increments keys repeatedly, with a limit of PATIENCE seconds for each
// call, and prints the result. Afterwards each key must have at least the number of acknowledged
// increments, and at most that plus the increments of unknown outcome.
func load(ctx context.Context, c *node.Client, args []string) error {
	if len(args) != 3 {
		return errors.New("load takes a key, for how long, and for how long each call")
	}
	long, err := seconds(args[1])
	if err != nil {
		return err
	}
	patience, err := seconds(args[2])
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	end := time.Now().Add(long)
	var mu sync.Mutex
	done, unknown, took := 0, 0, []time.Duration{}
	failed, wrong := map[string]int{}, []string{}
	examples := map[string]string{}
	var all sync.WaitGroup
	keys, begin := [loaders]string{}, [loaders]int64{}
	for i := range loaders {
		keys[i] = fmt.Sprintf("%s/%s/%d", args[0], host, i)
		if begin[i], _, err = c.Increment(ctx, keys[i], 0); err != nil {
			return err
		}
	}
	say(map[string]any{"counting": keys})
	for i, key := range keys {
		all.Go(func() {
			sure, perhaps := begin[i], begin[i]
			for time.Now().Before(end) && ctx.Err() == nil {
				start := time.Now()
				one, cancel := context.WithTimeout(ctx, patience)
				_, _, err := c.Increment(one, key, 1)
				cancel()
				waited := time.Since(start)
				code := node.CodeOf(err)
				mu.Lock()
				took = append(took, waited)
				switch {
				case err == nil:
					done++
				case code == node.CodeOutcomeUnknown:
					unknown++
				default:
					failed[string(code)]++
				}
				if err != nil {
					examples[string(code)] = err.Error()
				}
				mu.Unlock()
				if err == nil {
					sure++
				}
				if err == nil || code == node.CodeOutcomeUnknown {
					perhaps++
				}
				if err != nil { // This keeps failures from dominating the rate.
					time.Sleep(10 * time.Millisecond)
				}
			}
			reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			is, err := int64(0), error(nil)
			for {
				if is, _, err = c.Increment(reading, key, 0); err == nil || reading.Err() != nil {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil || is < sure || is > perhaps {
				wrong = append(wrong, fmt.Sprintf("%s is %d (%v), acknowledged were %d, and %d more may be", key, is, err, sure, perhaps-sure))
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	at := func(share float64) float64 {
		return took[min(len(took)-1, int(share*float64(len(took))))].Seconds()
	}
	say(map[string]any{"done": done, "unknown": unknown, "failed": failed, "examples": examples, "wrong": wrong,
		"median": at(0.5), "p99": at(0.99), "longest": at(1)})
	return nil
}

// momentBefore is the maximum time between an instance's recorded end and its real end.
const momentBefore = 100 * time.Millisecond

// instance SERVICE TTL runs an instance of a service until SIGTERM. Then half of the instances
// deregister, and the others end at once. Each instance records the time of its end for the test.
func instance(ctx context.Context, c *node.Client, args []string) error {
	if len(args) != 2 {
		return errors.New("instance takes a service and a time to live")
	}
	ttl, err := seconds(args[1])
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	// write the key in advance, because creating a key takes time
	if _, err := c.Put(ctx, "gone/"+host, []byte("0")); err != nil {
		return err
	}
	r, err := c.RegisterService(ctx, args[0], net.JoinHostPort(os.Getenv("POD_IP"), "8080"), node.TTL(ttl), node.Named(host))
	if err != nil {
		return err
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, host) }))
	}()
	<-ctx.Done()
	last, done := context.WithTimeout(context.Background(), 3*time.Second)
	defer done()
	if host[len(host)-1]%2 == 0 {
		if err := r.Deregister(last); err != nil {
			return err
		}
	}
	// The recorded time is before the end of the instance, by at most momentBefore. If the write
	// takes long, the lease is kept alive and the write is repeated.
	for {
		begin := time.Now()
		if _, err := c.Put(last, "gone/"+host, fmt.Append(nil, begin.UnixNano())); err != nil {
			return err
		}
		if time.Since(begin) < momentBefore {
			os.Exit(0)
		}
	}
}

// call SERVICE SECONDS calls instances of a service until SECONDS have passed or SIGTERM arrives.
// It always calls the first instance in the list.
func call(ctx context.Context, c *node.Client, args []string) error {
	if len(args) != 2 {
		return errors.New("call takes a service and for how long")
	}
	long, err := seconds(args[1])
	if err != nil {
		return err
	}
	end := time.Now().Add(long)
	say(map[string]any{"calling": args[0], "pid": os.Getpid()})
	web := http.Client{Timeout: 500 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	var mu sync.Mutex
	calls, failed, none := 0, 0, 0
	// for each instance, the time of its last call, and the errors
	last, trouble := map[string]time.Time{}, map[string]int{}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				instances, err := c.GetService(ctx, args[0])
				at := time.Now()
				if err != nil || len(instances) == 0 {
					mu.Lock()
					none++
					trouble[string(node.CodeOf(err))]++
					mu.Unlock()
					time.Sleep(20 * time.Millisecond)
					continue
				}
				i := instances[0]
				body := ""
				if answer, err := web.Get("http://" + i.Address + "/"); err == nil {
					b, _ := io.ReadAll(answer.Body)
					answer.Body.Close()
					body = string(b)
				}
				mu.Lock()
				calls++
				if body != i.Instance {
					failed++
				}
				if last[i.Instance].Before(at) {
					last[i.Instance] = at
				}
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	all.Wait()
	latest, late, gone := 0.0, []string{}, 0
	for name, at := range last {
		item, err := c.Get(context.WithoutCancel(ctx), "gone/"+name)
		if err != nil {
			return err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(item.Value)), 10, 64)
		switch {
		case !item.Found || ns == 0:
			continue
		case err != nil:
			return err
		}
		gone++
		after := at.Sub(time.Unix(0, ns)).Seconds()
		late, latest = append(late, fmt.Sprintf("%s %.3f s", name, after)), max(latest, after)
	}
	slices.Sort(late)
	say(map[string]any{"calls": calls, "failed": failed, "none": none, "trouble": trouble, "instances": len(last), "gone": gone,
		"latest": latest, "late": late})
	return nil
}
