package placement

import (
	"slices"
	"strings"
)

// Credentials are the prefixes under which Kubernetes and OpenShift keep credentials: secrets, and
// OAuth tokens. Their keys are not placed unless an operator's rule says so for the prefix, or for
// something narrower: pinning all of /registry/ is not enough. (etcd's prefix is /registry unless
// kube-apiserver's --etcd-prefix says otherwise.)
var Credentials = []string{"/registry/secrets/", "/kubernetes.io/secrets/", "/openshift.io/oauth/accesstokens/", "/openshift.io/oauth/authorizetokens/"}

// Credential reports whether a key begins with one of Credentials.
func Credential(key string) bool {
	return slices.ContainsFunc(Credentials, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
