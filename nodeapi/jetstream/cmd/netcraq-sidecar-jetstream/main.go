// Command netcraq-sidecar-jetstream is like netcraq-sidecar, but also supports NATS JetStream as a
// source of streams.
package main

import (
	"os"

	"github.com/netcraq/netcraq/nodeapi/jetstream"
	"github.com/netcraq/netcraq/nodeapi/sidecar"
)

func main() {
	os.Exit(sidecar.Run("netcraq-sidecar-jetstream", os.Args[1:], os.Stdout, os.Stderr, jetstream.Kind()))
}
