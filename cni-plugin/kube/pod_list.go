package kube

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// pod is a host at a node's switch.
type pod struct {
	agentapi.Pod
	IP   netip.Addr `json:"ip"`
	MAC  string     `json:"mac"`
	Port uint32     `json:"port"`
}

// podsOf is what is attached: its IPv4 addresses, and those of pods that have no IPv4, for the
// leader to say so of those that ask for the fast path.
func podsOf(records []agentapi.Record) []pod {
	out := []pod{}
	for _, r := range records {
		if r.State != agentapi.Ready {
			continue
		}
		var ip netip.Addr // a port leads to one host
		for _, a := range r.Addresses {
			if !ip.IsValid() || ip.Is6() && a.Prefix.Addr().Is4() {
				ip = a.Prefix.Addr()
			}
		}
		if ip.IsValid() {
			out = append(out, pod{r.Pod, ip, r.Container.MAC, r.Port})
		}
	}
	return out
}

// podList is an agent's list, as far as it can be one.
type podList struct {
	pods      []pod
	malformed int // entries that are not pods
	surplus   int // entries after the first podPorts, which a switch has no ports for
}

func (l podList) equal(o podList) bool {
	return l.malformed == o.malformed && l.surplus == o.surplus && slices.Equal(l.pods, o.pods)
}

// podsAtMost bounds a list, in bytes.
const podsAtMost = 1 << 20

// readPods reads one list. It keeps no more entries than a node can have pods.
func readPods(in *json.Decoder) (l podList, err error) {
	begin, err := in.Token()
	if err != nil || begin == nil { // null is an empty list
		return l, err
	}
	if begin != json.Delim('[') {
		return l, fmt.Errorf("a list of pods begins with %v", begin)
	}
	for in.More() {
		var entry json.RawMessage
		if err := in.Decode(&entry); err != nil {
			return l, err
		}
		var p pod
		switch {
		case len(l.pods)+l.malformed >= podPorts:
			l.surplus++
		case json.Unmarshal(entry, &p) != nil:
			l.malformed++
		default:
			l.pods = append(l.pods, p)
		}
	}
	_, err = in.Token()
	return l, err
}
