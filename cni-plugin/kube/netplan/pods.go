package netplan

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// Pod is a pod as a host at its node's switch.
type Pod struct {
	agentapi.Pod
	IP   netip.Addr `json:"ip"`
	MAC  string     `json:"mac"`
	Port uint32     `json:"port"`
}

// PodsOf returns the pods of a node's attachments with their IPv4 addresses. It includes pods
// without IPv4, so that the leader can report those that request the fast path.
func PodsOf(records []agentapi.Record) []Pod {
	out := []Pod{}
	for _, r := range records {
		if r.State != agentapi.Ready {
			continue
		}
		var ip netip.Addr // a port leads to one host, so only one address is used
		for _, a := range r.Addresses {
			if !ip.IsValid() || ip.Is6() && a.Prefix.Addr().Is4() {
				ip = a.Prefix.Addr()
			}
		}
		if ip.IsValid() {
			out = append(out, Pod{r.Pod, ip, r.Container.MAC, r.Port})
		}
	}
	return out
}

// PodList has the valid entries of an agent's list.
type PodList struct {
	Pods      []Pod
	Malformed int // number of entries that are not pods
	Surplus   int // number of entries after the first PodPorts entries; the switch has no ports for them
}

func (l PodList) Equal(o PodList) bool {
	return l.Malformed == o.Malformed && l.Surplus == o.Surplus && slices.Equal(l.Pods, o.Pods)
}

// ListLimit is the maximum size of an agent's list in bytes.
const ListLimit = 1 << 20

// ReadPods reads one list. It returns at most as many entries as a node can have pods.
func ReadPods(in *json.Decoder) (l PodList, err error) {
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
		var p Pod
		switch {
		case len(l.Pods)+l.Malformed >= PodPorts:
			l.Surplus++
		case json.Unmarshal(entry, &p) != nil:
			l.Malformed++
		default:
			l.Pods = append(l.Pods, p)
		}
	}
	_, err = in.Token()
	return l, err
}
