package netplan

// PodOn is a pod on a certain node. The leader accepts an agent's entry for a pod only if the API
// server says that the pod is on that node.
type PodOn struct{ UID, Node string }

// principalOf returns the principal of the pods in a namespace. It is also the realm of the
// namespace's keys.
func principalOf(namespace string) string { return "ns:" + namespace }

// keysOf returns the prefix of the names of a namespace's keys.
func keysOf(namespace string) string { return "ns/" + namespace + "/" }
