package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// notTheName is a metadata key. It tells etcd not to use the common name of our certificate as the
// user (see authStore.AuthInfoFromTLS in etcd).
const notTheName = "grpcgateway-accept"

// asNobody reads from etcd without a user, whatever the certificate says, to find out whether etcd
// checks identities. Only clients without a user name use it.
type asNobody struct{ clientv3.KV }

// Get implements clientv3.KV.
func (n asNobody) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return n.KV.Get(metadata.AppendToOutgoingContext(ctx, notTheName, "client/etcd"), key, o...)
}
