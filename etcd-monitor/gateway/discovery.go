package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/srv"
	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// discoveryWait is the timeout for an endpoint found in DNS to show its certificate.
const discoveryWait = 5 * time.Second

// Discover looks up etcd's endpoints in DNS, as etcd's own tools do. It reads the records
// _etcd-client-ssl._tcp.DOMAIN and _etcd-client._tcp.DOMAIN. If a name is given, the record's names
// have "-NAME" after "client" and "ssl". Unless insecure is set, Discover returns only endpoints
// that have a certificate for the domain that certs trusts. An attacker who forges DNS answers does
// not have such a certificate. etcd's own proxy intends the same, but only checks whether a server
// listens at the endpoint.
func Discover(domain, name string, certs transport.TLSInfo, insecure bool) ([]string, error) {
	found, err := srv.GetClient("etcd-client", domain, name)
	if err != nil {
		return nil, fmt.Errorf("gateway: asking DNS for etcd in %s: %w", domain, err)
	}
	if len(found.Endpoints) == 0 {
		return nil, errors.New("gateway: DNS names no etcd in " + domain)
	}
	if insecure {
		return found.Endpoints, nil
	}
	config, err := certs.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("gateway: the certificates towards etcd: %w", err)
	}
	config.ServerName = domain
	var trusted []string
	var refused []error
	for _, e := range found.Endpoints {
		address, secure := strings.CutPrefix(e, "https://")
		if !secure {
			refused = append(refused, fmt.Errorf("%s has no TLS", e))
			continue
		}
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: discoveryWait}, "tcp", address, config)
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", e, err))
			continue
		}
		c.Close()
		trusted = append(trusted, e)
	}
	if len(trusted) == 0 {
		return nil, fmt.Errorf("gateway: none of what DNS names as etcd in %s can be trusted: %w", domain, errors.Join(refused...))
	}
	return trusted, nil
}
