package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// notTheName tells etcd not to use the common name of our certificate as the user (etcd:
// authStore.AuthInfoFromTLS).
const notTheName = "grpcgateway-accept"

// asNobody reads in etcd without a user, regardless of the certificate, to find out whether etcd
// checks identities. It is for clients without a user.
type asNobody struct{ clientv3.KV }

// Get implements clientv3.KV.
func (n asNobody) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return n.KV.Get(metadata.AppendToOutgoingContext(ctx, notTheName, "client/etcd"), key, o...)
}
