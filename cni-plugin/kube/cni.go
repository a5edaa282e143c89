package kube

import (
	"context"
	"errors"
	"log/slog"

	"github.com/netcraq/netcraq/cni-plugin/cniconf"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// plugins returns the plugins that the agent installs on its node.
func (c CNI) plugins(chained bool) cniconf.Plugins {
	return cniconf.Plugins{From: c.From, To: c.BinDir, Own: "netcraq-cni", OnlyOwn: chained}
}

// install makes the node's container runtime use the plugin, and keeps it that way until ctx ends.
// fail ends the agent.
func (c CNI) install(
	ctx context.Context, self podroutes.Node, socket string, log *slog.Logger, fail func(error),
) error {
	plugins := c.plugins(false)
	if _, err := plugins.Install(); err != nil {
		return err
	}
	config := cniconf.Config{Version: c.Version, Subnets: self.PodCIDRs, Socket: socket}
	if c.ConfDir != "" {
		if err := cniconf.UnchainOthers(c.ConfDir); err != nil { // an agent with --chained may have left it
			return err
		}
		changed, err := config.Write(c.ConfDir)
		if err != nil {
			return err
		}
		if changed {
			log.Info("the container runtime's network is this one", "file", c.ConfDir+"/"+cniconf.File)
		}
	}
	go func() {
		if err := config.Keep(ctx, c.ConfDir, plugins, log); errors.Is(err, cniconf.ErrFolderGone) {
			fail(err)
		} else if err != nil {
			log.Error("the container runtime's list of plugins is not kept", "err", err)
		}
	}()
	return nil
}

// CNI says where a container runtime expects its network configuration and plugins.
type CNI struct {
	ConfDir string // folder of the runtime's network configuration; if "", this agent does not manage it
	BinDir  string
	From    string // folder with the plugins to install; if "", the agent installs none
	Version string // version of the CNI specification
}
