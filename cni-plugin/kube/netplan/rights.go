package netplan

// PodOn is a pod on a node. What an agent says about its node's pods counts for pods that the API
// server has there alone.
type PodOn struct{ UID, Node string }

// principalOf is the principal of a namespace's pods, and the realm of its keys.
func principalOf(namespace string) string { return "ns:" + namespace }

// keysOf is what the names of a namespace's keys begin with.
func keysOf(namespace string) string { return "ns/" + namespace + "/" }
