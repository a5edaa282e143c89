package kube

import (
	"context"
	"log/slog"
	"time"

	"github.com/netcraq/netcraq/api/admin"
)

// The node's switch ends with its agent. While agents are replaced, on control-plane nodes and on
// the other nodes at the same time, the switch may be a chain's last member for some seconds, until
// the replaced switches are members again. If it ended then, the chain's values would be lost. So
// the agent waits until each chain of its switch has another member, and no switch is joining.

// lastMember waits until the switch may end.
type lastMember struct {
	self   string // the switch's name
	chains func(context.Context) ([]admin.Chain, error)
	// most bounds the wait. silence bounds it while the controller does not answer, because the
	// leading agent may be being replaced, too.
	most, silence time.Duration
	log           *slog.Logger
}

// The pod's grace period (60 s) includes this wait, and leaves time for the node API's clients.
const (
	lastMemberMost    = 45 * time.Second
	lastMemberSilence = 10 * time.Second
	lastMemberEvery   = 200 * time.Millisecond
)

// wait returns when the switch may end, or after the maximum wait.
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

// needed says why the switch may not end; "": it may.
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
