package nodeapi

import "strings"

// KeyPrefix is the prefix of the names, in the controller's directory, of all keys of the node API.
const KeyPrefix = "node/"

// NamespacePrefix returns the prefix of the names, in the controller's directory, of a namespace's
// keys. The namespace's realm has the same prefix.
func NamespacePrefix(namespace string) string { return KeyPrefix + namespace + "/" }

// KeyName returns the name of a namespace's key in the controller's directory.
func KeyName(namespace, key string) string { return NamespacePrefix(namespace) + key }

// ParseKeyName splits a name of the controller's directory into namespace and key. A namespace
// contains no slash, but a key may.
func ParseKeyName(name string) (namespace, key string, ok bool) {
	rest, ok := strings.CutPrefix(name, KeyPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}
