package kube

import (
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// LabelSwitch is the label that a switch of a fabric has for a chain's nodeSelector: its name.
const LabelSwitch = "netcraq.io/switch"

// switchesOf are a fabric's switches, numbered in the order of the file, as what chains are made
// of: they are no nodes, but have what matters of one here. Of no fabric there are none.
func switchesOf(f *fabric.Fabric) []node {
	if f == nil {
		return nil
	}
	var out []node
	for i, s := range f.Switches() {
		out = append(out, node{Node: podroutes.Node{Name: s.Name}, number: int32(i + 1),
			status: v1alpha1.NetcraqNodeStatus{P4Runtime: s.P4Runtime},
			labels: map[string]string{LabelSwitch: s.Name}, there: true, ready: true, schedulable: true})
	}
	return out
}
