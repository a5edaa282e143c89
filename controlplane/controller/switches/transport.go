package switches

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// TLSConfig is the TLS configuration for the switches of a topology, from the topology's files; nil
// if it has none.
func TLSConfig(t topology.TLS) (*tls.Config, error) {
	if t.CA == "" {
		return nil, nil
	}
	fail := func(err error) error { return fmt.Errorf("p4runtimeTLS of the topology: %w", err) }
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fail(fmt.Errorf("ca: %w", err))
	}
	conf := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fail(fmt.Errorf("ca: there is no certificate in %s", t.CA))
	}
	if t.Cert == "" {
		return conf, nil
	}
	// Read for each connection, so that a certificate can be renewed; read now, so that a mistake
	// is found now.
	own := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fail(fmt.Errorf("cert and key: %w", err))
		}
		return &cert, nil
	}
	if _, err := own(nil); err != nil {
		return nil, err
	}
	conf.GetClientCertificate = own
	return conf, nil
}

// tlsFor is how a switch is connected to where all are so; nil: in plain text.
func tlsFor(all *tls.Config, s *topology.Switch) *tls.Config {
	if all == nil {
		return nil
	}
	conf := all.Clone()
	if s.ServerName != "" {
		conf.ServerName = s.ServerName
	}
	return conf
}
