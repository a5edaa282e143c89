package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/p4src"
)

type options struct {
	switches   int
	chains     int
	members    int // of each chain
	lease      int // milliseconds
	rest       time.Duration
	patience   time.Duration
	controller string
	log        string
	until      string // one of stepNames
}

// stepNames are the steps in the order in which they are measured.
var stepNames = []string{"start", "rest", "record", "failover", "takeover", "restart"}

// Result is what was measured with one network. Times are in seconds.
type Result struct {
	Switches int `json:"switches"`
	Chains   int `json:"chains"`
	Members  int `json:"members"` // switches that are in any chain
	Lease    int `json:"leaseMillis"`
	// Ready is the time from the controller's start until all chains serve, with switches that have
	// no program yet; Filled, until nothing more is written to any switch.
	Ready  float64 `json:"ready"`
	Filled float64 `json:"filled"`
	Writes int64   `json:"writes"` // table entries written until then
	// CPU is the controller's processor time until Filled.
	FillCPU float64 `json:"fillCPU"`
	// At rest: processor seconds a second, and resident memory in bytes.
	RestSeconds float64 `json:"restSeconds"`
	RestCPU     float64 `json:"restCPU"`
	SwitchesCPU float64 `json:"switchesCPU"` // of the process with all switches
	Memory      int64   `json:"memory"`
	Looks       int64   `json:"looks"`   // leases read at the switches
	Expired     int64   `json:"expired"` // of them, those that had run out
	Record      int64   `json:"record"`  // bytes of names and values in etcd
	Keys        int     `json:"keys"`    // of etcd
	Largest     int     `json:"largest"` // bytes of the largest value
	// A core switch is killed. Used is how many chains have it; Failover, the time until the
	// first, the median and the last of them serve without it. Back is the time from its restart
	// until all of them have it again.
	Used            int     `json:"used"`
	FailoverFirst   float64 `json:"failoverFirst"`
	Failover        float64 `json:"failover"`
	FailoverLast    float64 `json:"failoverLast"`
	FailoverLooks   int64   `json:"failoverLooks"`   // leases of the others read meanwhile
	FailoverExpired int64   `json:"failoverExpired"` // of them, those that had run out
	Back            float64 `json:"back"`
	// Takeover is the time from the leader's kill until its successor says that all chains serve;
	// Restart, from the start of a controller that finds everything in place.
	Takeover float64 `json:"takeover"`
	Restart  float64 `json:"restart"`
	// Failed is why the measurement ended early; "": it did not.
	Failed string `json:"failed,omitempty"`
}

// bench is one network under measurement.
type bench struct {
	o        options
	r        Result
	dir      string
	etcd     string // its address
	topology string // file
	f        *fabric
	switches *process
	leader   *process
	events   *events // of the first leader
	all      []*process
}

func measure(ctx context.Context, o options) (*Result, error) {
	b := &bench{o: o}
	var err error
	if b.dir, err = os.MkdirTemp("", "netcraq-bench-controller"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)
	defer func() {
		for _, p := range b.all {
			p.kill()
		}
	}()
	if err := b.setUp(); err != nil {
		return nil, err
	}
	steps := []func(context.Context) error{b.start, b.rest, b.record, b.failover, b.takeover, b.restart}
	for i, do := range steps[:slices.Index(stepNames, o.until)+1] {
		fmt.Fprintf(os.Stderr, "%d switches: %s\n", o.switches, stepNames[i])
		limit, cancel := context.WithTimeoutCause(ctx, o.patience+o.rest,
			fmt.Errorf("it takes longer than %v (--patience)", o.patience))
		err := do(limit)
		cancel()
		if err != nil {
			b.r.Failed = fmt.Sprintf("%s: %v", stepNames[i], err)
			return &b.r, nil
		}
	}
	return &b.r, nil
}

// setUp starts etcd and the switches, and writes the topology.
func (b *bench) setUp() error {
	var program topology.ProgramSpec
	var err error
	if program.JSON, program.P4Info, err = p4src.Write(filepath.Join(b.dir, "program"), 128); err != nil {
		return err
	}
	if b.f, err = newFabric(b.o.switches, b.o.chains, b.o.members, program, b.o.lease); err != nil {
		return err
	}
	b.r.Switches, b.r.Chains, b.r.Lease = b.o.switches, len(b.f.spec.Chains), b.o.lease
	b.r.Members = b.f.inChains()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	etcd, err := b.run(self, "etcd", filepath.Join(b.dir, "etcd"))
	if err != nil {
		return err
	}
	if b.etcd, err = etcd.line(context.Background()); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if b.switches, err = b.run(self, "switches", fmt.Sprint(b.o.switches)); err != nil {
		return err
	}
	s, err := b.tell(command{Do: "cables", Cables: b.f.cables})
	if err != nil {
		return err
	}
	for i, a := range s.Addresses {
		b.f.spec.Switches[i].P4Runtime = a
	}
	if _, err := topology.New(b.f.spec, "the network to measure"); err != nil {
		return err
	}
	b.topology = filepath.Join(b.dir, "net.json")
	return b.writeTopology()
}

// tell gives the process with the switches a command.
func (b *bench) tell(c command) (s state, err error) {
	text, err := json.Marshal(c)
	if err != nil {
		return s, err
	}
	if _, err := b.switches.in.Write(append(text, '\n')); err != nil {
		return s, fmt.Errorf("the switches: %w", err)
	}
	answer, err := b.switches.line(context.Background())
	if err != nil {
		return s, fmt.Errorf("the switches: %w", err)
	}
	if err := json.Unmarshal([]byte(answer), &s); err != nil {
		return s, err
	}
	if s.Error != "" {
		return s, fmt.Errorf("the switches: %s", s.Error)
	}
	return s, nil
}

// record reads the size of the controllers' state in etcd.
func (b *bench) record(ctx context.Context) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{b.etcd}, DialTimeout: 5 * time.Second,
		Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	found, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	b.r.Keys = len(found.Kvs)
	for _, kv := range found.Kvs {
		b.r.Record += int64(len(kv.Key) + len(kv.Value))
		b.r.Largest = max(b.r.Largest, len(kv.Value))
	}
	return nil
}
