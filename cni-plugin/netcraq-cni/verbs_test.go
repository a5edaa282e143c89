package main

import (
	"testing"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// TestPodOf checks which pod podOf finds in the arguments of runtimes.
func TestPodOf(t *testing.T) {
	for arguments, want := range map[string]agentapi.Pod{
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=team;K8S_POD_NAME=a-0;K8S_POD_INFRA_CONTAINER_ID=0f;K8S_POD_UID=5b1c": {Namespace: "team", Name: "a-0", UID: "5b1c"},
		"K8S_POD_NAMESPACE=team;K8S_POD_NAME=a-0": {Namespace: "team", Name: "a-0"},
		"":              {},
		"IgnoreUnknown": {},
	} {
		if got := podOf(arguments); got != want {
			t.Errorf("%q: %+v, not %+v", arguments, got, want)
		}
	}
}
