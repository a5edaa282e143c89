// Package readsource lets a client of the gateway ask who answered a read: a request with the gRPC
// metadata Header gets an answer with the header of the same name, which says "network", or "etcd:
// " and why. Other requests cost nothing and get none.
package readsource

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Header is the metadata key, of the request and of the answer.
const Header = "netcraq-answered"

// Network is the header's value if the network has answered.
const Network = "network"

// Etcd returns the header's value if etcd has answered, with the reason why the network has not.
func Etcd(why string) string { return "etcd: " + why }

// Answered tells the client of a request who answers it, if it has asked.
func Answered(ctx context.Context, who string) {
	if len(metadata.ValueFromIncomingContext(ctx, Header)) > 0 {
		_ = grpc.SetHeader(ctx, metadata.Pairs(Header, who)) // outside a request of gRPC's there is no client to tell
	}
}
