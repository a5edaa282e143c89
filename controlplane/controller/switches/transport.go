package switches

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// TLSConfig makes the TLS configuration for the switches of a topology from the topology's files.
// It returns nil if the topology names no files.
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
	// The certificate is read for each connection, so that it can be renewed. The code below also
	// reads it at once, so that an error in the certificate is reported early.
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

// tlsFor returns the TLS configuration for one switch, based on the common one. It returns nil for
// plain text.
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
