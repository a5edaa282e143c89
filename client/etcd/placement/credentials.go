package placement

import (
	"slices"
	"strings"
)

// Credentials are the prefixes under which Kubernetes and OpenShift keep credentials: secrets, and
// OAuth tokens. Their keys are placed only if an operator's rule names the prefix, or a narrower
// prefix. A rule for all of /registry/ is not enough. The prefixes assume the default /registry of
// kube-apiserver's --etcd-prefix.
var Credentials = []string{"/registry/secrets/", "/kubernetes.io/secrets/", "/openshift.io/oauth/accesstokens/", "/openshift.io/oauth/authorizetokens/"}

// Credential reports whether a key begins with one of Credentials.
func Credential(key string) bool {
	return slices.ContainsFunc(Credentials, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
