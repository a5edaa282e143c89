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

// cleanUpCommand is the command that removes NetCRAQ from a node after its agent has ended.
// Existing pods keep their interfaces until they end, but cannot reach pods of other nodes.
func cleanUpCommand() *cobra.Command {
	var confDir, stateDir string
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove NetCRAQ from a node whose agent has stopped",
		Long: `cleanup removes everything that a stopped agent leaves on its node. It begins with the container
runtime's configuration, so that the node accepts no more pods. Then it removes routes to other
nodes' pods, tunnels, the nftables tables (masquerading; filters for tunnels and the switch), and
the node's own interface at the switch or its routes to the switches of a fabric. Pods keep their
interfaces until they end, so drain the node first.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.Join(cniconf.Remove(confDir), agent.ReleaseRecorded(stateDir),
				podroutes.RemovePeerLinks(nil), podroutes.Remove(),
				masquerade.Remove(), nodeswitch.DisconnectHost(), ingressfilter.RemoveSwitch(),
				podroutes.RemoveServices())
		},
	}
	c.Flags().StringVar(&confDir, "cni-conf-dir", "/etc/cni/net.d", "`FOLDER` with the container runtime's network configuration")
	c.Flags().StringVar(&stateDir, "state-dir", "/run/netcraq/attachments", "`FOLDER` with the agent's records of attachments")
	return c
}
