package gateway

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/srv"
	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// Discover asks DNS where etcd is: the records _etcd-client-ssl._tcp.DOMAIN and _etcd-client._tcp.DOMAIN, with "-NAME" after "client" and "ssl" where a name is given, as etcd's own tools do. Unless insecure, only endpoints
// count that have TLS, with a certificate for the domain that is signed by one in caFile, or the system's; they are connected to once.
func Discover(domain, name, caFile string, insecure bool) ([]string, error) {
	found, err := srv.GetClient("etcd-client", domain, name)
	if err != nil {
		return nil, fmt.Errorf("gateway: asking DNS for etcd in %s: %w", domain, err)
	}
	endpoints := found.Endpoints
	if !insecure {
		if endpoints, err = transport.ValidateSecureEndpoints(transport.TLSInfo{TrustedCAFile: caFile, ServerName: domain}, endpoints); len(endpoints) == 0 {
			return nil, fmt.Errorf("gateway: DNS names %s as etcd in %s, and none can be trusted: %w", strings.Join(found.Endpoints, ","), domain, err)
		}
	}
	if len(endpoints) == 0 {
		return nil, errors.New("gateway: DNS names no etcd in " + domain)
	}
	return endpoints, nil
}
