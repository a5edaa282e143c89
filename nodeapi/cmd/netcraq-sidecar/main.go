// Command netcraq-sidecar serves the node API to the programs of one pod, or of one machine.
package main

import (
	"os"

	"github.com/netcraq/netcraq/nodeapi/sidecar"
)

func main() { os.Exit(sidecar.Run("netcraq-sidecar", os.Args[1:], os.Stdout, os.Stderr)) }
