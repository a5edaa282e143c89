package nodeapi

import "strings"

// KeyPrefix begins the names, in the controller's directory, of all keys of the node API.
const KeyPrefix = "node/"

// NamespacePrefix begins the names, in the controller's directory, of a namespace's keys. The
// namespace's realm has this prefix.
func NamespacePrefix(namespace string) string { return KeyPrefix + namespace + "/" }

// KeyName returns the name of a namespace's key in the controller's directory.
func KeyName(namespace, key string) string { return NamespacePrefix(namespace) + key }

// ParseKeyName returns the namespace and the key for a name in the controller's directory. A
// namespace contains no slash; a key may.
func ParseKeyName(name string) (namespace, key string, ok bool) {
	rest, ok := strings.CutPrefix(name, KeyPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}
