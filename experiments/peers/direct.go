package peers

import (
	"context"
	"fmt"

	netcraq "github.com/netcraq/netcraq/client/etcd"
)

// Direct is etcd without a gateway (package client/etcd). This process reads placed keys from the
// switches, and writes them under their guards.
type Direct struct {
	*Etcd
	network *netcraq.Client
}

// NewDirect connects to etcd (as [NewEtcd] does), and to the controller's admin API at a URL.
func NewDirect(ctx context.Context, endpoints []string, ca, controller string) (*Direct, error) {
	e, err := NewEtcd(ctx, endpoints, ca)
	if err != nil {
		return nil, err
	}
	n, err := netcraq.Use(ctx, e.client, netcraq.Config{Controller: controller})
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("reading placed keys from the switches: %w", err)
	}
	return &Direct{e, n}, nil
}

// Network returns how many reads the switches have answered.
func (d *Direct) Network() uint64 { return d.network.Stats().Network }
