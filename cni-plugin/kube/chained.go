package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apps "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/cniconf"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// agentLabel is the label that the agents' DaemonSets have. The other constant is its value.
const (
	agentLabel     = "app.kubernetes.io/name"
	agentName      = "netcraq-agent"
	componentLabel = "app.kubernetes.io/component"
)

// keepChained adds netcraq-cni after the existing plugin in the container runtime's list, and keeps
// it there until ctx ends. unchain also ends this. It removes the plugin from the list, and all
// ports of an agent. fail ends the agent.
func (c CNI) keepChained(
	ctx context.Context, socket string, log *slog.Logger, fail func(error),
) (unchain func(*agent.Agent) error, err error) {
	plugins := c.plugins(true)
	if _, err := plugins.Install(); err != nil {
		return nil, err
	}
	if c.ConfDir == "" {
		return (*agent.Agent).Release, nil
	}
	chained := cniconf.Chained{Dir: c.ConfDir, Socket: socket}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := chained.Keep(ctx, plugins, log); errors.Is(err, cniconf.ErrFolderGone) {
			fail(err)
		} else if err != nil {
			log.Error("netcraq-cni is not kept behind the other plugin", "err", err)
		}
	}()
	return func(a *agent.Agent) error {
		stop()
		<-ended
		// The plugin leaves the list first, so that new pods do not require an agent.
		return errors.Join(cniconf.Unchain(c.ConfDir), a.Release())
	}, nil
}

// removalPatience limits how long an ending agent checks whether another agent will follow it.
const removalPatience = 5 * time.Second

// removed reports whether the DaemonSet of an ending agent was deleted or is being deleted. If the
// agent's own account or rights are gone, all of NetCRAQ is being removed.
func removed(r client.Reader, namespace, component string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), removalPatience)
	defer cancel()
	labels := client.MatchingLabels{agentLabel: agentName}
	if component != "" {
		labels[componentLabel] = component
	}
	var sets apps.DaemonSetList
	err := r.List(ctx, &sets, client.InNamespace(namespace), labels)
	switch {
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("whether this agent's DaemonSet is being removed: %w", err)
	}
	for _, s := range sets.Items {
		if s.DeletionTimestamp == nil {
			return false, nil
		}
	}
	return true, nil
}

// releaseIfRemoved handles the uninstallation of an agent. It removes the plugin from the other
// plugin's list, and everything of the agent from that plugin's interfaces. It returns true if the
// agent is being uninstalled. If it cannot find out, it removes nothing, and pods keep their ports.
func (o *Options) releaseIfRemoved(r client.Reader, a *agent.Agent, unchain func(*agent.Agent) error) bool {
	gone, err := removed(r, o.Namespace, o.Component)
	switch {
	case err != nil:
		o.Log.Warn("netcraq-cni stays behind the other plugin: where NetCRAQ is being removed, netcraq-agent cleanup takes it out", "err", err)
	case gone:
		if err := unchain(a); err != nil {
			o.Log.Error("not all that is NetCRAQ's was taken off the other plugin's network: netcraq-agent cleanup does it", "err", err)
		}
		o.Log.Info("NetCRAQ is being removed: the other plugin's list and interfaces are as they were")
	}
	return gone && err == nil
}

// releaseNode removes everything of the agent that is not at pods' interfaces. It is called after
// the switch has ended.
func releaseNode() error {
	return errors.Join(podroutes.RemovePeerLinks(nil), podroutes.Remove(), nodeswitch.DisconnectHost(),
		ingressfilter.RemoveSwitch(), podroutes.RemoveServices())
}
