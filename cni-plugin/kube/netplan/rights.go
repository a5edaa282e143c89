package netplan

// PodOn is a pod on a node. The leader accepts an agent's entry of a pod only if the API server
// places the pod on that node.
type PodOn struct{ UID, Node string }

// principalOf is the principal of a namespace's pods, and also the realm of its keys.
func principalOf(namespace string) string { return "ns:" + namespace }

// keysOf is the prefix of the names of a namespace's keys.
func keysOf(namespace string) string { return "ns/" + namespace + "/" }
