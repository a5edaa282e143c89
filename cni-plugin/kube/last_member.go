package kube

import (
	"context"
	"log/slog"
	"time"

	"github.com/netcraq/netcraq/api/admin"
)

// The node's switch ends with its agent. Agents may be replaced on control-plane nodes and on other
// nodes at the same time. A switch may then be the last member of a chain for some seconds, until
// the switches of replaced agents are members again. If this switch ended, the chain's values would
// be lost. So the agent waits until each chain of its switch has another member, and no switch is
// joining.

// lastMember waits until the switch may end.
type lastMember struct {
	self   string // name of the node's switch
	chains func(context.Context) ([]admin.Chain, error)
	// most is the maximum wait. silence is the maximum wait while the controller does not answer,
	// because the leading agent may also be being replaced.
	most, silence time.Duration
	log           *slog.Logger
}

// The pod's grace period (60 s) includes this wait, and also leaves time for clients of the node
// API.
const (
	lastMemberMost    = 45 * time.Second
	lastMemberSilence = 10 * time.Second
	lastMemberEvery   = 200 * time.Millisecond
)

// wait returns when the switch may end, or when the maximum wait is over.
func (l lastMember) wait() {
	ctx, cancel := context.WithTimeout(context.Background(), l.most)
	defer cancel()
	heard, why := time.Now(), ""
	for {
		chains, err := l.chains(ctx)
		reason := l.needed(chains)
		switch {
		case err == nil && reason == "":
			return
		case err == nil:
			heard = time.Now()
		case time.Since(heard) > l.silence:
			l.log.Warn("it ends without knowing whether a chain's values end with it", "err", err)
			return
		default:
			reason = "the controller does not say who the members of the chains are"
		}
		if reason != why {
			l.log.Info("it ends later", "because", reason)
			why = reason
		}
		select {
		case <-ctx.Done():
			l.log.Warn("it waits no more, and values may be lost", "because", reason)
			return
		case <-time.After(lastMemberEvery):
		}
	}
}

// needed returns the reason why the switch may not end yet, or "" if it may.
func (l lastMember) needed(chains []admin.Chain) string {
	for _, c := range chains {
		member, others, joins := false, 0, false
		for _, m := range c.Members {
			switch {
			case m.Role == "NONE":
			case m.Role == "SHADOW":
				joins = true
			case m.Switch == l.self:
				member = true
			case m.Ready && m.LeaseLive:
				others++
			}
		}
		switch {
		case !member || c.Keys == 0:
		case others == 0:
			return "this node's switch is the only member of the chain " + c.Name
		case joins:
			return "a switch is being brought into the chain " + c.Name
		}
	}
	return ""
}
