// Package readsource lets a client of the gateway find out what answered a read. A request with the
// gRPC metadata Header gets an answer with the header of the same name: "network", or "etcd: " and
// the reason. Other requests get no such header and have no extra cost.
package readsource

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Header is the metadata key in the request and in the answer.
const Header = "netcraq-answered"

// Network is the header's value if a switch has answered the read.
const Network = "network"

// Etcd returns the header's value if etcd has answered the read. why is the reason why the switches
// have not answered.
func Etcd(why string) string { return "etcd: " + why }

// Answered tells the client of a request what answered the request, if the client has asked for
// that.
func Answered(ctx context.Context, who string) {
	if len(metadata.ValueFromIncomingContext(ctx, Header)) > 0 {
		// Outside of a gRPC request there is no client, and SetHeader fails.
		_ = grpc.SetHeader(ctx, metadata.Pairs(Header, who))
	}
}
