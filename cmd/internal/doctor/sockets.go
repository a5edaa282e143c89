package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/admin"
)

// Paths of the agent's sockets on its node.
const (
	agentSocket = "/run/netcraq/agent.sock"
	nodeSocket  = "/run/netcraq-node/node.sock"
)

func sockets(ctx context.Context, l *look) {
	agent := l.answers(agentSocket, "the agent, for the CNI plugin", "kubectl -n netcraq-system logs of this node's netcraq-agent says why")
	if agent {
		l.agentStatus(ctx)
	}
	l.answers(nodeSocket, "the node API, for pods", "kubectl -n netcraq-system logs of this node's netcraq-agent says why")
	if address, ok := l.adminAddress(); ok {
		l.controller(ctx, address)
	} else {
		l.note("controller", "there is no admin API on this machine (--admin names one elsewhere): control-plane nodes have it")
	}
}

// answers reports whether a process accepts connections at a socket.
func (l *look) answers(socket, what, advice string) bool {
	path := l.path(socket)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		l.note(socket, "not there: no agent runs on this machine (%s)", what)
		return false
	}
	c, err := net.DialTimeout("unix", path, l.Timeout)
	switch {
	case err == nil:
		c.Close()
		l.ok(socket, "%s answers", what)
		return true
	case denied(err):
		l.unseen(socket, "connecting", err)
	case errors.Is(err, unix.ECONNREFUSED):
		l.problem(socket, advice, "nobody listens at it any more: %s has ended without taking it away", what)
	default:
		l.problem(socket, advice, "%s does not answer: %v", what, err)
	}
	return false
}

// agentStatus checks whether the agent can attach containers (cni-plugin/agentapi).
func (l *look) agentStatus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	client := &http.Client{Transport: adminTransport("unix://" + l.path(agentSocket))}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/status", nil)
	if err != nil {
		return
	}
	answer, err := client.Do(req)
	if err != nil {
		l.problem(agentSocket, "restart this node's agent", "it takes connections, but does not answer: %v", err)
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		l.problem(agentSocket, "what it says has to be mended; pods that are made here meanwhile wait", "the agent cannot attach containers: %s", strings.TrimSpace(string(text)))
	}
}

// refusals are the HTTP statuses for an unauthorized caller.
var refusals = []int{http.StatusUnauthorized, http.StatusForbidden}

// controller checks the state of the chains through the admin API.
func (l *look) controller(ctx context.Context, address string) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	const who = "controller"
	chains, err := admin.NewClient(address, admin.TokenFile(l.TokenFile)).Chains(ctx)
	var told *admin.Error
	switch {
	case errors.As(err, &told) && slices.Contains(refusals, told.Status), denied(err):
		l.unseen(who, "asking for its chains", fmt.Errorf("%w: %w", os.ErrPermission, err))
		return
	case err != nil:
		l.problem(who, "does a controller run (systemctl, or kubectl -n netcraq-system get pods)? Its log says what it waits for", "%v", err)
		return
	case len(chains) == 0:
		l.note(who, "it answers, and has no chain yet")
		return
	}
	for _, ch := range chains {
		var names, silent []string
		for _, m := range ch.Members {
			names = append(names, m.Switch)
			if !m.Ready || !m.LeaseLive && ch.LeaseMillis > 0 {
				silent = append(silent, m.Switch)
			}
		}
		subject := "chain " + ch.Name
		switch {
		case len(silent) > 0:
			l.warn(subject, "netcraqctl switch list says since when; look at those machines with netcraqctl doctor", "%s may not answer: no configuration, or no live lease", strings.Join(silent, ", "))
		case ch.Short() > 0:
			var lost []string
			for _, m := range ch.Missing {
				lost = append(lost, fmt.Sprintf("%s (%s)", m.Switch, m.Why))
			}
			l.warn(subject, "they come back by themselves when they are steady: look at those machines with netcraqctl doctor",
				"%d of %d members: %s", len(ch.Members), ch.Length, strings.Join(lost, ", "))
		case !ch.Ready:
			l.warn(subject, "netcraqctl chain show "+ch.Name+", and events", "it is being changed")
		default:
			l.ok(subject, "ready: %s", strings.Join(names, ", "))
		}
	}
}

// refused reports whether an error means that no process listens.
func refused(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}
