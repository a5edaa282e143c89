package reconcilers

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/controlplane/controller"
)

// bad are the controller's events that may need an operator's attention. All other reported events
// are harmless: they are in good, or begin with "chain.".
var bad = []string{"chain.failover", "chain.lost", "chain.lost-member", "chain.not-ready", "chain.not-recovered", "chain.recovery-abandoned", "chain.not-drained", "chain.not-redriven", "chain.epoch", "chain.epochs", "chain.left-out", "chain.not-rejoined", "chain.lease-not-changed", "keys.forgotten",
	"lease.refused", "controller.held-up", "state.not-saved", "switch.disconnected", "switch.unreachable", "switch.not-set-up", "switch.refused", "switch.backup", "switch.program-not-replaced", "keys.not-tidied"}

// good are harmless events of switches that are reported, too. A switch that has just reconnected
// has hundreds of other events.
var good = []string{"switch.connected", "switch.program-loaded"}

// follow turns the controller's events into Kubernetes events, and wakes the network reconciler
// after events about chains or switches. It ignores events about keys, because keys come and go all
// the time.
func (p *Operator) follow(ctx context.Context, c *controller.Controller) {
	for since := uint64(0); ; {
		events, more := c.Events(since)
		news := false
		for _, e := range events {
			since = e.ID
			if slices.Contains(good, e.Type) { // the missing switch may have caused an earlier failure
				p.network.Retry()
				p.membership.Retry()
			}
			news = news || strings.HasPrefix(e.Type, "chain.") || slices.Contains(good, e.Type) ||
				slices.Contains(bad, e.Type)
			p.tell(ctx, e)
		}
		if news {
			for _, w := range []apiobjects.Waker{p.network, p.membership, p.chains} {
				w.Wake()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}

func (p *Operator) tell(ctx context.Context, e admin.Event) {
	kind := corev1.EventTypeNormal
	if slices.Contains(bad, e.Type) {
		kind = corev1.EventTypeWarning
	} else if !strings.HasPrefix(e.Type, "chain.") && !slices.Contains(good, e.Type) {
		return
	}
	var about runtime.Object
	switch {
	case e.Chain != "":
		c := &v1alpha1.NetcraqChain{}
		if p.client.Get(ctx, apiobjects.Key(e.Chain), c) != nil {
			return // the resource no longer exists
		}
		about = c
	case e.Switch != "" && p.o.Fabric != nil:
		return // a switch of the fabric has no object; the log and the metrics have the event
	case e.Switch != "":
		// The UID is the node's name, as in a kubelet's events about nodes, because `kubectl
		// describe node` searches for that.
		about = &corev1.ObjectReference{Kind: "Node", Name: e.Switch, UID: types.UID(e.Switch)}
	default:
		return
	}
	message := e.Message
	if e.Chain != "" && e.Switch != "" && !strings.Contains(message, e.Switch) {
		message = e.Switch + ": " + message
	}
	p.recorder.Event(about, kind, reason(e.Type), message)
}

// reason converts a kind of event, for example "chain.lost-member" to "ChainLostMember".
func reason(kind string) string {
	var b strings.Builder
	for _, w := range strings.FieldsFunc(kind, func(c rune) bool { return c == '.' || c == '-' }) {
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	return b.String()
}
