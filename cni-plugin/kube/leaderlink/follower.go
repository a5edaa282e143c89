package leaderlink

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
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/netcraq/netcraq/cni-plugin/kube/logonce"
	"github.com/netcraq/netcraq/cni-plugin/kube/netplan"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
)

// The leader must know which pod is at which port of which switch. It asks the nodes' agents, and
// not the API server. A Pod has no fields for an interface's port and Ethernet address. Writing
// them into other objects would cost the cluster's etcd two writes for each pod. The leader keeps
// one connection to each agent open (mutual TLS). The agent sends the list of its pods when it
// changes, and every podsBeat, so that both ends notice when the other has gone.

// PodsPath is the path at which an agent serves the list of its pods.
const PodsPath = "/v1/pods"

const (
	// podsPause is the minimum time between two lists of an agent. So a hundred pods that start
	// together cause only a few lists.
	podsPause    = 50 * time.Millisecond
	podsBeat     = 10 * time.Second
	podsPatience = 3 * podsBeat
	// podsHeader limits the header of an agent's answer, in bytes.
	podsHeader = 16 << 10
)

// PodFollower knows the pods of all nodes.
type PodFollower struct {
	tls     *tls.Config
	log     *slog.Logger
	changed func()

	mu    sync.Mutex
	pods  map[string]netplan.PodList // lists by the name of their node
	there map[string]bool            // nodes whose agents are connected
	tasks map[string]*task           // tasks by the name and address of their node
}

// NewPodFollower makes a PodFollower that has no nodes yet. changed is called when a list has
// changed.
func NewPodFollower(conf *tls.Config, log *slog.Logger, changed func()) *PodFollower {
	return &PodFollower{tls: conf, log: log, changed: changed, pods: map[string]netplan.PodList{},
		there: map[string]bool{}, tasks: map[string]*task{}}
}

// Follow makes the PodFollower follow exactly these agents until ctx ends. The map has their
// addresses by the nodes' names. If a node cannot be reached, its last list stays valid.
func (f *PodFollower) Follow(ctx context.Context, agents map[string]string) {
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
	maps.DeleteFunc(f.pods, func(name string, _ netplan.PodList) bool { return agents[name] == "" })
}

// Alive reports whether there is a connection to a node's agent.
func (f *PodFollower) Alive(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.there[node]
}

// All returns the known pods, by the name of their node. wrong has the entries that were left out
// of the nodes' lists.
func (f *PodFollower) All() (pods map[string][]netplan.Pod, wrong nodeclaims.Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pods = map[string][]netplan.Pod{}
	for _, node := range slices.Sorted(maps.Keys(f.pods)) {
		l := f.pods[node]
		pods[node] = l.Pods
		if l.Malformed > 0 {
			wrong.AddMany(node, nodeclaims.WrongEntry, l.Malformed, "an entry of the node's list is not a pod")
		}
		if l.Surplus > 0 {
			wrong.AddMany(node, nodeclaims.TooManyPods, l.Surplus, "the node's list has more than %d entries", netplan.PodPorts)
		}
	}
	return pods, wrong
}

func (f *PodFollower) one(ctx context.Context, node, address string) {
	conf := f.tls.Clone()
	conf.ServerName = node
	transport := &http.Transport{TLSClientConfig: conf, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).
		DialContext, ResponseHeaderTimeout: podsPatience, MaxResponseHeaderBytes: podsHeader,
		// With compression, a few bytes could expand to many.
		DisableCompression: true}
	defer transport.CloseIdleConnections()
	var failed logonce.Last
	retry := workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		err := f.read(ctx, &http.Client{Transport: transport}, "https://"+address+PodsPath, node, func() {
			retry.Forget(node)
			failed = logonce.Last{}
		})
		f.mu.Lock()
		delete(f.there, node)
		f.mu.Unlock()
		if ctx.Err() == nil && failed.IsNew(err) {
			f.log.Warn("cannot list the pods of a node; using the last known list", "node", node, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.When(node)):
		}
	}
}

// read reads an agent's lists until the connection ends.
func (f *PodFollower) read(ctx context.Context, c *http.Client, url, node string, heard func()) error {
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
		body.N = netplan.ListLimit
		list, err := netplan.ReadPods(in)
		if err != nil && body.N == 0 {
			err = fmt.Errorf("a list of pods is longer than %d bytes: %w", netplan.ListLimit, err)
		}
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		silence.Reset(podsPatience)
		heard()
		f.mu.Lock()
		last, known := f.pods[node]
		changed := ctx.Err() == nil && (!known || !last.Equal(list))
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
		// If an agent sends lists faster than this, it must wait, so that it does not keep the
		// leader busy.
		select {
		case <-ctx.Done():
		case <-time.After(podsPause):
		}
	}
}
