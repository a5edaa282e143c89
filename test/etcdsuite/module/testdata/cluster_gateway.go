// Package integration connects etcd's tests to members through a gateway in the place of etcd's
// grpc-proxy. This file replaces the file framework/integration/cluster_direct.go of etcd's tests.
package integration

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/netcraq/netcraq/test/etcdsuite/inplace"
)

// ThroughProxy makes tests leave out checks that fail with etcd's own proxy. With a gateway, they
// leave out nothing.
const ThroughProxy = false

// ToGRPC returns the gRPC services of a client.
func ToGRPC(c *clientv3.Client) GRPCAPI {
	conn := c.ActiveConnection()
	return GRPCAPI{
		Cluster: pb.NewClusterClient(conn), KV: pb.NewKVClient(conn), Lease: pb.NewLeaseClient(conn),
		Watch: pb.NewWatchClient(conn), Maintenance: pb.NewMaintenanceClient(conn),
		Auth: pb.NewAuthClient(conn), Lock: v3lockpb.NewLockClient(conn),
		Election: v3electionpb.NewElectionClient(conn),
	}
}

func newClientV3(cfg clientv3.Config) (*clientv3.Client, error) { return inplace.NewClient(cfg) }
