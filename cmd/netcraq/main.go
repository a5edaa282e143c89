// Command netcraq is the main command. It starts a key-value store on this machine (netcraq dev),
// and has the commands for operators. Through the node API it reads, writes, watches and locks keys
// by name. See netcraq --help.
package main

import (
	"os"

	"github.com/netcraq/netcraq/cmd/internal/operate"
	"github.com/netcraq/netcraq/cmd/internal/place"
)

func main() { operate.Main(program(os.Getenv)) }

func program(getenv func(string) string) operate.Program {
	c := &cli{getenv: getenv}
	return operate.Program{Name: "netcraq", Complete: c.complete,
		Admin: func() string { return place.Admin(c.socket, getenv) }}
}
