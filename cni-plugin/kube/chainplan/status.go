package chainplan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
)

// Status computes the status of a chain's resource.
func Status(
	c *v1alpha1.NetcraqChain, was v1alpha1.NetcraqChainStatus, is *admin.Chain, p *Plan,
) v1alpha1.NetcraqChainStatus {
	s := v1alpha1.NetcraqChainStatus{ObservedGeneration: c.Generation, Conditions: slices.Clone(was.Conditions)}
	set := func(kind string, yes bool, reason, message string) {
		state := metav1.ConditionFalse
		if yes {
			state = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: state, Reason: reason,
			Message: message, ObservedGeneration: c.Generation})
	}
	if p.Refused != "" {
		set(v1alpha1.ConditionAccepted, false, "Conflict", p.Refused)
		set(v1alpha1.ConditionReady, false, "NotAccepted", "the chain is not formed")
		set(v1alpha1.ConditionFullLength, false, "NotAccepted", "the chain is not formed")
		return s
	}
	set(v1alpha1.ConditionAccepted, true, "Accepted", "")
	if is == nil {
		reason, message := "WaitingForNodes", p.Waiting
		if p.Trouble != nil {
			reason, message = "NotInstalled", p.Trouble.Error()
		}
		set(v1alpha1.ConditionReady, false, reason, message)
		set(v1alpha1.ConditionFullLength, false, reason, message)
		return s
	}
	s.ServiceAddress, s.Epoch = is.ServiceAddress, int32(is.Epoch)
	s.PlacedKeys, s.Slots = int32(is.Keys), int32(is.Slots)
	for _, m := range is.Members {
		s.Members = append(s.Members, v1alpha1.Member{Node: m.Switch, Role: m.Role, Ready: m.Ready && m.LeaseLive})
	}
	var names []string
	for _, m := range s.Members {
		names = append(names, m.Node)
	}
	s.Length, s.Order = int32(len(names)), strings.Join(names, " ")
	switch {
	case p.Trouble != nil:
		set(v1alpha1.ConditionReady, false, "NotInstalled", p.Trouble.Error())
	case is.Ready:
		set(v1alpha1.ConditionReady, true, "Serving", "every member has the configuration and may answer")
	default:
		set(v1alpha1.ConditionReady, false, "NotServing", is.Reason)
	}
	if s.Length == c.Spec.Length {
		set(v1alpha1.ConditionFullLength, true, "AsAsked", "")
	} else {
		set(v1alpha1.ConditionFullLength, false, "NodesMissing", fmt.Sprintf("%d of %d members", s.Length, c.Spec.Length))
	}
	return s
}

// Plan is the network reconciler's decision about a chain.
type Plan struct {
	Generation int64 // generation of the resource that the plan is for; 0 if there is no resource
	Spec       v1alpha1.NetcraqChainSpec
	Wanted     bool // reports whether the chain should exist; if not, it is removed
	Formed     bool // reports whether the chain has members
	Refused    string
	Waiting    string // what a chain without members waits for
	Trouble    error  // error of the network that prevents the plan
}
