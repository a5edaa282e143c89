package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"
)

// Legacy is the authority of agents of the previous version. That version had no roles: each agent
// had the authority's key, and made its own certificates for servers and clients. While its Secret
// exists, agents also trust this authority. Servers then use one of its certificates, because a
// controller of that version knows no other authority. So agents can be replaced one after the
// other. Until the Secret is removed, security is as in the previous version.
type Legacy struct {
	*Authority
	now  func() time.Time
	node string
	own  *tls.Certificate
}

// LoadLegacy makes a Legacy from a certificate and a key in PEM.
func LoadLegacy(p Pair) (*Legacy, error) {
	a, err := Load(p)
	if err != nil {
		return nil, err
	}
	return &Legacy{Authority: a, now: time.Now}, nil
}

// Same reports whether certificate, in PEM, is the certificate of this authority.
func (l *Legacy) Same(certificate []byte) bool {
	certs, err := parseCertificates(certificate)
	return err == nil && certs[0].Equal(l.cert)
}

// certificate returns a certificate for a node. Calls must not overlap.
func (l *Legacy) certificate(node string) (*tls.Certificate, error) {
	now := l.now()
	if l.own != nil && l.node == node && l.own.Leaf.NotAfter.Sub(now) > leafLife/2 {
		return l.own, nil
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key for %s: %w", node, err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: serial,
		Subject: pkix.Name{Organization: []string{"netcraq-agent"}}, DNSNames: []string{node},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(leafLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, l.cert, k.Public(), l.key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %s: %w", node, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %s: %w", node, err)
	}
	l.node, l.own = node, &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k, Leaf: leaf}
	return l.own, nil
}
