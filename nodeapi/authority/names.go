package authority

import (
	"fmt"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// CheckNamespace returns nil if a name is valid for a namespace. The name must be a DNS label, as
// in Kubernetes. Such a name has only one spelling: lower case, one alphabet, no dots and no
// slashes. So two different names are always two different namespaces.
func CheckNamespace(name string) error {
	if name == "" || len(name) > nodeapi.MaxNamespace {
		return notANamespace(name)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && i > 0 && i < len(name)-1:
		default:
			return notANamespace(name)
		}
	}
	return nil
}

func notANamespace(name string) error {
	const most = 80 // maximum number of bytes of the name that an error quotes
	shown := fmt.Sprintf("%+q", name[:min(len(name), most)])
	return &nodeapi.Error{Code: nodeapi.CodeInvalidArgument, Message: fmt.Sprintf(
		"%s of %d bytes is not a namespace, a DNS label: 1 to %d of a-z, 0-9 and '-', with no '-' at its ends",
		shown, len(name), nodeapi.MaxNamespace)}
}
