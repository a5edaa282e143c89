package placement

import (
	"slices"
	"strings"
)

// Credentials are the prefixes under which Kubernetes and OpenShift keep what gives access:
// secrets, and OAuth tokens. Their keys are not placed unless an operator's rule says so that is
// about the prefix, or about something narrower: it takes more than to pin all of /registry/.
// (Etcd's prefix is /registry where kube-apiserver's --etcd-prefix says nothing else.)
var Credentials = []string{"/registry/secrets/", "/kubernetes.io/secrets/", "/openshift.io/oauth/accesstokens/", "/openshift.io/oauth/authorizetokens/"}

// Credential says whether a key is under one of them.
func Credential(key string) bool {
	return slices.ContainsFunc(Credentials, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
