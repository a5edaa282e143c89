package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/agent"
)

// Names of the DaemonSet that enforces network policies (cni-plugin/policies), and of the nftables
// table that it writes on each node.
const (
	policiesName  = "netcraq-policies"
	policiesTable = "netcraq_policies"
)

// policiesEvery is how often the agent checks whether the table with the policies exists.
const policiesEvery = 2 * time.Second

// readyWithPolicies makes the agent ready as soon as the node enforces network policies. The rules
// of the policies are only in the kernel. So a rebooted node has none until netcraq-policies has
// started, and a pod that started earlier would not be isolated. If the cluster has no such
// DaemonSet, or if it has --fail-open, the agent is ready at once. present reports whether the node
// has a table with this name.
func readyWithPolicies(ctx context.Context, r client.Reader, namespace string, a *agent.Agent,
	present func(table string) (bool, error), log *slog.Logger) {
	said := ""
	for {
		reason, err := missingPolicies(ctx, r, namespace, present)
		if err != nil {
			reason = fmt.Sprintf("whether this node enforces network policies is not known: %v", err)
		}
		if ctx.Err() != nil {
			return
		}
		if a.SetReady(reason == "", reason); reason == "" {
			log.Info("pods can be attached")
			return
		}
		if reason != said {
			log.Warn("pods wait", "reason", reason)
			said = reason
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(policiesEvery):
		}
	}
}

// missingPolicies returns the reason why pods must not start yet, or "" if they may.
func missingPolicies(ctx context.Context, r client.Reader, namespace string,
	present func(table string) (bool, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, removalPatience)
	defer cancel()
	var sets apps.DaemonSetList
	err := r.List(ctx, &sets, client.InNamespace(namespace), client.MatchingLabels{agentLabel: policiesName})
	if err != nil {
		return "", fmt.Errorf("listing DaemonSets: %w", err)
	}
	if !slices.ContainsFunc(sets.Items, enforces) {
		return "", nil
	}
	there, err := present(policiesTable)
	if err != nil || there {
		return "", err
	}
	return "this node does not enforce network policies yet: see the pod of the DaemonSet " + policiesName +
		" on this node (or set its --fail-open, or delete it)", nil
}

// enforces reports whether a DaemonSet must enforce policies from the first packet of a pod on.
func enforces(s apps.DaemonSet) bool {
	if s.DeletionTimestamp != nil {
		return false
	}
	for _, c := range s.Spec.Template.Spec.Containers {
		if slices.Contains(c.Args, "--fail-open") || slices.Contains(c.Args, "--fail-open=true") {
			return false
		}
	}
	return true
}
