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

// Legacy is the authority of agents before there were roles: each of them had its key, and made
// certificates for itself, for servers and clients alike. While its Secret exists it is trusted as
// well, and a server uses a certificate of it, because a controller of that version knows no other:
// so agents can be replaced one after the other. Until then there is no gain in security.
type Legacy struct {
	*Authority
	now  func() time.Time
	node string
	own  *tls.Certificate
}

// LoadLegacy reads it.
func LoadLegacy(p Pair) (*Legacy, error) {
	a, err := Load(p)
	if err != nil {
		return nil, err
	}
	return &Legacy{Authority: a, now: time.Now}, nil
}

// Same says whether it is the authority with a certificate in PEM.
func (l *Legacy) Same(certificate []byte) bool {
	certs, err := parseCertificates(certificate)
	return err == nil && certs[0].Equal(l.cert)
}

// certificate is a node's. It is for one caller at a time.
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
