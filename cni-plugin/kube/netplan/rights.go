package netplan

// PodOn is a pod on a node. An agent's statements about pods count only for pods that the API
// server has on that node.
type PodOn struct{ UID, Node string }

// principalOf is the principal of a namespace's pods, and the realm of its keys.
func principalOf(namespace string) string { return "ns:" + namespace }

// keysOf is what the names of a namespace's keys begin with.
func keysOf(namespace string) string { return "ns/" + namespace + "/" }
