package nodeview

import (
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// LabelSwitch is the label with a fabric switch's name, for a chain's nodeSelector.
const LabelSwitch = "netcraq.io/switch"

// FabricSwitches are a fabric's switches as Nodes, numbered in the order of the file. They are not
// nodes, but have the fields that chains need. A nil fabric has none.
func FabricSwitches(f *fabric.Fabric) []Node {
	if f == nil {
		return nil
	}
	var out []Node
	for i, s := range f.Switches() {
		out = append(out, Node{Node: podroutes.Node{Name: s.Name}, Number: int32(i + 1),
			Status: v1alpha1.NetcraqNodeStatus{P4Runtime: s.P4Runtime},
			Labels: map[string]string{LabelSwitch: s.Name}, There: true, Ready: true, Schedulable: true})
	}
	return out
}
