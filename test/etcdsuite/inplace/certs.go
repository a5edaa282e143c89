package inplace

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// certs are certificates as flags of a gateway.
type certs struct {
	id       string   // a text that identifies the content of the certificates
	dir      string   // directory of the files
	server   []string // flags for connections from clients
	upstream []string // flags for connections to etcd
}

func (c certs) remove() {
	if c.dir != "" {
		os.RemoveAll(c.dir)
	}
}

// certificates writes the files for a client's configuration. The gateway presents the client's own
// certificate to etcd, and the certificate of etcd's tests to clients.
func certificates(t *tls.Config, endpoint string) (c certs, err error) {
	if t == nil {
		return c, nil
	}
	fixtures := os.Getenv(EnvFixtures)
	ca := filepath.Join(fixtures, "ca.crt")
	c.server = []string{"--cert-file", filepath.Join(fixtures, "server.crt"), "--key-file", filepath.Join(fixtures, "server.key.insecure")}
	if strings.HasPrefix(endpoint, "http:") || strings.HasPrefix(endpoint, "unix:") {
		return c, nil // the connection to etcd has no TLS, although the client requires TLS
	}
	if c.dir, err = os.MkdirTemp("", "gw"); err != nil {
		return c, err
	}
	sum := sha256.New()
	if own, err := shown(t); err != nil {
		return c, err
	} else if own != nil {
		cert, key := filepath.Join(c.dir, "cert"), filepath.Join(c.dir, "key")
		if err := writePair(cert, key, own); err != nil {
			return c, err
		}
		sum.Write(own.Certificate[0])
		c.upstream = append(c.upstream, "--cert", cert, "--key", key)
	}
	if t.InsecureSkipVerify { // The servers' certificates are self-signed.
		c.upstream = append(c.upstream, "--insecure-skip-tls-verify")
	} else {
		c.server = append(c.server, "--client-cert-auth", "--trusted-ca-file", ca)
		c.upstream = append(c.upstream, "--cacert", ca)
	}
	c.id = fmt.Sprintf("%x", sum.Sum(nil))
	return c, nil
}

// shown returns the certificate that a client presents to servers, if any.
func shown(t *tls.Config) (*tls.Certificate, error) {
	if t.GetClientCertificate != nil {
		own, err := t.GetClientCertificate(&tls.CertificateRequestInfo{})
		if err == nil && len(own.Certificate) == 0 {
			own = nil
		}
		return own, err
	}
	if len(t.Certificates) > 0 {
		return &t.Certificates[0], nil
	}
	return nil, nil
}

func writePair(cert, key string, c *tls.Certificate) error {
	var chain []byte
	for _, der := range c.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(cert, chain, 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}
