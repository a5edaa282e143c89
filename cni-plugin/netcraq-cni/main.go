// Command netcraq-cni is a CNI plugin, version 1.1 of the specification. It gives containers
// interfaces at the node's NetCRAQ switch. The container runtime starts this command, and the node
// agent (netcraq-agent) does the work.
package main

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/netcraq/netcraq/api/buildinfo"
)

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: check, GC: collect, Status: status},
		version.All, about())
}

// about returns the text that is printed if no CNI_COMMAND is given.
func about() string {
	return fmt.Sprintf("netcraq-cni %s: a CNI plugin, to be started by a container runtime", buildinfo.Get())
}
