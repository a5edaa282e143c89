package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/cniconf"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/masquerade"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// cleanUpCommand takes NetCRAQ off a node, after its agent has ended. Pods that are there keep
// their interfaces until they end, but reach the other nodes' no more.
func cleanUpCommand() *cobra.Command {
	var confDir, stateDir string
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Take NetCRAQ off a node whose agent has ended",
		Long: `cleanup removes what an agent leaves on its node when it ends: the container runtime's
configuration (first, so that the node takes no more pods), routes to other nodes' pods,
tunnels, nftables' tables (masquerading; who may send in tunnels and to the switch), and
the node's own end at the switch or its routes to those of a fabric. Interfaces of pods go
with the pods: drain the node before.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.Join(cniconf.Remove(confDir), agent.ReleaseRecorded(stateDir),
				podroutes.RemovePeerLinks(nil), podroutes.Remove(),
				masquerade.Remove(), nodeswitch.DisconnectHost(), ingressfilter.RemoveSwitch(),
				podroutes.RemoveServices())
		},
	}
	c.Flags().StringVar(&confDir, "cni-conf-dir", "/etc/cni/net.d", "`FOLDER` where the container runtime looks for its network's configuration")
	c.Flags().StringVar(&stateDir, "state-dir", "/run/netcraq/attachments", "`FOLDER` with the agent's records of attachments")
	return c
}
