// Package identity gives the agents of a cluster certificates, by which they know each other: the leader's controller shows one to the switches, and each switch shows one to
// the controller (TLS 1.3, both ways).
//
//	the cluster's authority (a Secret, 10 years) ──▶ an agent's certificate (in memory, a week), for its node's name
//
// There is no request and no approval: an agent that can read the authority's key makes itself what it needs, and nobody has to be there for that. The price is that each
// agent can be any other; but each agent can read the same Secret, has its node's root, and is of the same kind, so there is nobody to tell apart. Pods, and people on the
// nodes' network, cannot get as far as a handshake's end.
package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 7 * 24 * time.Hour
	// clockSkew is by how much nodes' clocks may differ.
	clockSkew = 5 * time.Minute
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pool *x509.CertPool
	now  func() time.Time
}

// NewAuthority makes an authority's certificate and key, in PEM.
func NewAuthority() (certificate, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making the authority's key: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "NetCRAQ agents"}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		return nil, nil, fmt.Errorf("making the authority's certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, fmt.Errorf("the authority's key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// Load reads an authority.
func Load(certificate, key []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("the agents' authority: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("the agents' authority: the certificate is not one that signs others")
	}
	a := &Authority{cert: pair.Leaf, key: signer, pool: x509.NewCertPool(), now: time.Now}
	if a.now().After(a.cert.NotAfter) {
		return nil, fmt.Errorf("the agents' authority has run out on %s: delete its Secret, and start all agents again", a.cert.NotAfter.Format(time.DateOnly))
	}
	a.pool.AddCert(a.cert)
	return a, nil
}

// issue makes a certificate for a node's agent, as server and as client.
func (a *Authority) issue(node string) (*tls.Certificate, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key for %s: %w", node, err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	now := a.now()
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{Organization: []string{"netcraq-agent"}}, DNSNames: []string{node},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(leafLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %s: %w", node, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %s: %w", node, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k, Leaf: leaf}, nil
}

// TLS is both sides of a node's agent: a server with it lets in only clients with a certificate of the authority, and a client with it (and ServerName, the other node's name)
// talks only to that node's agent. The certificate is replaced when half of its life is over.
func (a *Authority) TLS(node string) (*tls.Config, error) {
	own := &renewed{authority: a, node: node}
	if _, err := own.get(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              a.pool,
		ClientCAs:            a.pool,
		ClientAuth:           tls.RequireAndVerifyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.get() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.get() },
	}, nil
}

// renewed is a certificate that does not run out.
type renewed struct {
	authority *Authority
	node      string

	mu   sync.Mutex
	cert *tls.Certificate
}

func (r *renewed) get() (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cert != nil && r.cert.Leaf.NotAfter.Sub(r.authority.now()) > leafLife/2 {
		return r.cert, nil
	}
	c, err := r.authority.issue(r.node)
	if err != nil {
		return nil, err
	}
	r.cert = c
	return c, nil
}

// serialNumber is 127 random bits.
func serialNumber() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("a certificate's serial number: %w", err)
	}
	return n, nil
}
