package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// network is the last valid content of the topology file, and the controller that follows it.
type network struct {
	path   string
	stdout io.Writer
	stderr io.Writer

	mu  sync.Mutex
	top *topology.Topology
	c   *controller.Controller // nil while another process leads
}

// topology returns the wanted topology.
func (n *network) topology() *topology.Topology {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.top
}

// lead sets the controller that follows the topology from now on. c is nil if another process
// leads.
func (n *network) lead(c *controller.Controller) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.c = c
}

// follow reads the file again at each SIGHUP, until ctx ends.
func (n *network) follow(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hup)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				if err := n.reload(ctx); err != nil {
					fmt.Fprintf(n.stderr, "netcraq-controller: SIGHUP: %v\nnetcraq-controller: the network stays as it is\n", err)
				}
			}
		}
	}()
}

// reload reads the file again and makes the controller follow it. If the file has a mistake,
// nothing changes.
func (n *network) reload(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	top, err := topology.Load(n.path)
	if err != nil {
		return err
	}
	if n.c != nil {
		err = n.c.Update(ctx, top)
	} else {
		// Find mistakes now, and not only when this process leads.
		_, err = controller.New(controller.Options{Topology: top, Store: saved.Memory{}})
	}
	if err != nil {
		return err
	}
	n.top = top
	fmt.Fprintf(n.stdout, "%s was read again: %d switches, %d hosts, %d chains\n", n.path, len(top.Switches), len(top.Hosts), len(top.Chains))
	return nil
}
