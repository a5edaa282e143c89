package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// The leader must know which pod is at which port of which switch. It asks the nodes' agents, and
// not the API server: an interface's port and Ethernet address stand in no Pod, and to write them
// into other objects would cost the cluster's etcd two writes for each pod. Each agent has one
// connection to the leader open (TLS, both ways), and sends the list of its pods there when it
// changes, and every podsBeat, so that both ends notice when the other has gone.

// podsPath is where an agent serves its pods.
const podsPath = "/v1/pods"

const (
	// podsPause is the least time between two lists: a hundred pods that start together are a few
	// lists.
	podsPause    = 50 * time.Millisecond
	podsBeat     = 10 * time.Second
	podsPatience = 3 * podsBeat
	// podsAtMost bounds a list, in bytes.
	podsAtMost = 1 << 20
	// podsHeader bounds the header of the answer, in bytes.
	podsHeader = 16 << 10
)

// pod is a host at a node's switch.
type pod struct {
	agentapi.Pod
	IP   netip.Addr `json:"ip"`
	MAC  string     `json:"mac"`
	Port uint32     `json:"port"`
}

// podsOf is what is attached: its IPv4 addresses, and those of pods that have no IPv4, for the
// leader to say so of those that ask for the fast path.
func podsOf(records []agentapi.Record) []pod {
	out := []pod{}
	for _, r := range records {
		if r.State != agentapi.Ready {
			continue
		}
		var ip netip.Addr // a port leads to one host
		for _, a := range r.Addresses {
			if !ip.IsValid() || ip.Is6() && a.Prefix.Addr().Is4() {
				ip = a.Prefix.Addr()
			}
		}
		if ip.IsValid() {
			out = append(out, pod{r.Pod, ip, r.Container.MAC, r.Port})
		}
	}
	return out
}

// podList is an agent's list, as far as it can be one.
type podList struct {
	pods      []pod
	malformed int // entries that are not pods
	surplus   int // entries after the first podPorts, which a switch has no ports for
}

func (l podList) equal(o podList) bool {
	return l.malformed == o.malformed && l.surplus == o.surplus && slices.Equal(l.pods, o.pods)
}

// readPods reads one list. It keeps no more entries than a node can have pods.
func readPods(in *json.Decoder) (l podList, err error) {
	begin, err := in.Token()
	if err != nil || begin == nil { // null is an empty list
		return l, err
	}
	if begin != json.Delim('[') {
		return l, fmt.Errorf("a list of pods begins with %v", begin)
	}
	for in.More() {
		var entry json.RawMessage
		if err := in.Decode(&entry); err != nil {
			return l, err
		}
		var p pod
		switch {
		case len(l.pods)+l.malformed >= podPorts:
			l.surplus++
		case json.Unmarshal(entry, &p) != nil:
			l.malformed++
		default:
			l.pods = append(l.pods, p)
		}
	}
	_, err = in.Token()
	return l, err
}

// servePods serves the list of an agent's pods: JSON, a list each time that it has changed.
func servePods(a *agent.Agent) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		out, control := json.NewEncoder(w), http.NewResponseController(w)
		beat := time.NewTicker(podsBeat)
		defer beat.Stop()
		for {
			changes := a.Changes()
			_ = control.SetWriteDeadline(time.Now().Add(podsPatience)) // every server here can do it
			if out.Encode(podsOf(a.Attachments())) != nil || control.Flush() != nil {
				return // the leader has gone
			}
			select {
			case <-r.Context().Done():
				return
			case <-beat.C:
			case <-changes:
				time.Sleep(podsPause)
			}
		}
	})
}

// follower knows the pods of all nodes.
type follower struct {
	tls     *tls.Config
	log     *slog.Logger
	changed func()

	mu    sync.Mutex
	pods  map[string]podList // by the node's name
	there map[string]bool    // nodes whose agents are connected to
	tasks map[string]*task   // by the node's name and address
}

func newFollower(conf *tls.Config, log *slog.Logger, changed func()) *follower {
	return &follower{tls: conf, log: log, changed: changed, pods: map[string]podList{}, there: map[string]bool{},
		tasks: map[string]*task{}}
}

// follow follows exactly these agents (addresses by nodes' names) from now on, until ctx ends. Of a
// node that cannot be reached the last list holds.
func (f *follower) follow(ctx context.Context, agents map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := map[string]bool{}
	for name, address := range agents {
		key := name + " " + address
		wanted[key] = true
		if !f.tasks[key].running() {
			t := newTask(ctx)
			f.tasks[key] = t
			go f.one(t.ctx, name, address)
		}
	}
	endOthers(f.tasks, wanted)
	maps.DeleteFunc(f.pods, func(name string, _ podList) bool { return agents[name] == "" })
}

// alive says whether a node's agent is connected to.
func (f *follower) alive(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.there[node]
}

// all are the pods that are known, by their nodes' names, and what was left out of the nodes'
// lists.
func (f *follower) all() (pods map[string][]pod, wrong faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pods = map[string][]pod{}
	for _, node := range slices.Sorted(maps.Keys(f.pods)) {
		l := f.pods[node]
		pods[node] = l.pods
		if l.malformed > 0 {
			wrong.addMany(node, wrongEntry, l.malformed, "an entry of the node's list is not a pod")
		}
		if l.surplus > 0 {
			wrong.addMany(node, tooManyPods, l.surplus, "the node's list has more than %d entries", podPorts)
		}
	}
	return pods, wrong
}

func (f *follower) one(ctx context.Context, node, address string) {
	conf := f.tls.Clone()
	conf.ServerName = node
	transport := &http.Transport{TLSClientConfig: conf, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).
		DialContext, ResponseHeaderTimeout: podsPatience, MaxResponseHeaderBytes: podsHeader,
		// Compressed, a few bytes would be many.
		DisableCompression: true}
	defer transport.CloseIdleConnections()
	var failed logOnce
	retry := workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		err := f.read(ctx, &http.Client{Transport: transport}, "https://"+address+podsPath, node, func() {
			retry.Forget(node)
			failed = logOnce{}
		})
		f.mu.Lock()
		delete(f.there, node)
		f.mu.Unlock()
		if ctx.Err() == nil && failed.isNew(err) {
			f.log.Warn("a node's pods are not known, but for those that were", "node", node, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.When(node)):
		}
	}
}

// read reads lists until there are none any more.
func (f *follower) read(ctx context.Context, c *http.Client, url, node string, heard func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(podsPatience, func() { cancel(fmt.Errorf("nothing was heard for %v", podsPatience)) })
	defer silence.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %.100s", url, resp.Status)
	}
	body := &io.LimitedReader{R: resp.Body}
	in := json.NewDecoder(body)
	for {
		body.N = podsAtMost
		list, err := readPods(in)
		if err != nil && body.N == 0 {
			err = fmt.Errorf("a list of pods is longer than %d bytes: %w", podsAtMost, err)
		}
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		silence.Reset(podsPatience)
		heard()
		f.mu.Lock()
		last, known := f.pods[node]
		changed := ctx.Err() == nil && (!known || !last.equal(list))
		if changed {
			f.pods[node] = list
		}
		if ctx.Err() == nil {
			f.there[node] = true
		}
		f.mu.Unlock()
		if changed {
			f.changed()
		}
		// An agent that sends lists faster waits, and does not keep the leader busy.
		select {
		case <-ctx.Done():
		case <-time.After(podsPause):
		}
	}
}
