package nodeview

import (
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// LabelSwitch is the label that has a fabric switch's name. A chain's nodeSelector can use it.
const LabelSwitch = "netcraq.io/switch"

// FabricSwitches returns the switches of a fabric in the form of Nodes, numbered in the order of
// the file. They are not nodes, but have the fields that chains need. For a nil fabric it returns
// none.
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
