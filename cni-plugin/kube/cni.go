package kube

import (
	"context"
	"errors"
	"log/slog"

	"github.com/netcraq/netcraq/cni-plugin/cniconf"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// plugins are those that the agent installs.
func (c CNI) plugins(chained bool) cniconf.Plugins {
	return cniconf.Plugins{From: c.From, To: c.BinDir, Own: "netcraq-cni", OnlyOwn: chained}
}

// install makes the node's container runtime use the plugin, and makes sure that the runtime
// continues until ctx ends. fail ends the agent.
func (c CNI) install(
	ctx context.Context, self podroutes.Node, socket string, log *slog.Logger, fail func(error),
) error {
	plugins := c.plugins(false)
	if _, err := plugins.Install(); err != nil {
		return err
	}
	config := cniconf.Config{Version: c.Version, Subnets: self.PodCIDRs, Socket: socket}
	if c.ConfDir != "" {
		if err := cniconf.UnchainOthers(c.ConfDir); err != nil { // of an agent that was behind another plugin
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

// CNI says where a container runtime looks for its network.
type CNI struct {
	ConfDir string // "": the runtime's configuration is not this agent's business
	BinDir  string
	From    string // the folder with the plugins to install; "": none are
	Version string // of the specification
}
