// Package readsource lets a client of the gateway find out what answered a read. A request with the
// gRPC metadata Header gets an answer with the header of the same name: "network", or "etcd: " and
// the reason. Other requests get no such header and cost nothing extra.
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

// Answered reports to a request's client what answers the request, if the client has asked.
func Answered(ctx context.Context, who string) {
	if len(metadata.ValueFromIncomingContext(ctx, Header)) > 0 {
		// outside a gRPC request there is no client to tell
		_ = grpc.SetHeader(ctx, metadata.Pairs(Header, who))
	}
}
