// Package identity gives the agents of a cluster certificates, by which they authenticate each
// other. There are two kinds of certificates, and neither is valid as the other:
//
//	a switch's, for a server: every agent has one for its own node, and its switch and the agent's port show it
//	a controller's, for a client: an agent that may lead has one, and switches and agents let in nobody else
//
// So with a key that is stolen from a node whose agent may not lead, an attacker can impersonate
// only that node's switch. The key gives no access to other nodes.
//
// An agent makes its keys in memory and requests certificates (package kube does that, with
// CertificateSigningRequests). The authority that signs them is on the control plane. A certificate
// is valid for a week, and the agent renews it after half of that time. While one authority
// replaces another, agents trust both (State). Agents read a public bundle with the certificates of
// the trusted authorities.
package identity

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Identity has the certificates of a node's agent, and the authorities that the agent trusts. A new
// Identity is empty. Handshakes fail until it has certificates and authorities.
type Identity struct {
	node string
	now  func() time.Time

	mu      sync.Mutex
	trusted []*x509.Certificate // the first of these authorities signs
	pool    *x509.CertPool
	own     map[Role][]*tls.Certificate // certificates of each role, the newest first
	legacy  *Legacy

	// parted is the legacy authority after it was removed. Agents learn of the removal one after
	// the other. So they still trust its switches for a while, but not its controllers.
	parted      *Legacy
	partedUntil time.Time
}

// partedTime is how long parted is trusted. It is longer than all agents take to learn of a change.
const partedTime = 5 * time.Minute

// New makes an empty identity for a node's agent.
func New(node string) *Identity {
	return &Identity{node: node, now: time.Now, pool: x509.NewCertPool(), own: map[Role][]*tls.Certificate{}}
}

func (i *Identity) time() time.Time { return i.now() }

// Trust replaces the trusted authorities. bundle has their certificates in PEM, the signing
// authority's first.
func (i *Identity) Trust(bundle []byte) error {
	certs, err := parseCertificates(bundle)
	if err != nil {
		return fmt.Errorf("the agents' authorities: %w", err)
	}
	for _, c := range certs {
		if !c.IsCA {
			return errors.New("the agents' authorities: one of the certificates may not sign others")
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.trusted = certs
	i.fill()
	return nil
}

// Believe additionally trusts the authority of agents of the previous version. Believe(nil) ends
// that trust.
func (i *Identity) Believe(l *Legacy) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if l == nil && i.legacy != nil {
		i.parted, i.partedUntil = i.legacy, i.now().Add(partedTime)
	}
	i.legacy = l
	i.fill()
}

// fill rebuilds the pool of trusted certificates from the authorities.
func (i *Identity) fill() {
	i.pool = x509.NewCertPool()
	for _, c := range i.trusted {
		i.pool.AddCert(c)
	}
	if i.legacy != nil {
		i.pool.AddCert(i.legacy.cert)
	}
}

// Install adds a certificate, in PEM, with its key. It returns an error if the certificate is not
// for this node, role and key, or if no trusted authority has signed it.
func (i *Identity) Install(role Role, key crypto.Signer, certificate []byte) error {
	certs, err := parseCertificates(certificate)
	if err != nil {
		return fmt.Errorf("the certificate that was issued: %w", err)
	}
	leaf := certs[0]
	if public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(key.Public()) {
		return errors.New("the certificate that was issued is for another key")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	// This pool omits the legacy authority, because its certificates have no role.
	pool := x509.NewCertPool()
	for _, c := range i.trusted {
		pool.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: i.node,
		KeyUsages: []x509.ExtKeyUsage{role.usage}, CurrentTime: i.now()}); err != nil {
		return fmt.Errorf("the certificate that was issued: %w", err)
	}
	if !role.is(leaf) {
		return fmt.Errorf("the certificate that was issued is not a %s's", role)
	}
	kept := []*tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}}
	for _, c := range i.own[role] {
		// a switch that does not know the new certificate's authority yet gets the old one
		if i.now().Before(c.Leaf.NotAfter) && len(kept) < 2 {
			kept = append(kept, c)
		}
	}
	i.own[role] = kept
	return nil
}

// Due reports whether a role needs a new certificate. That is so if it has none, if half of its
// life is over, or if another authority signs now.
func (i *Identity) Due(role Role) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.trusted) == 0 {
		return false // without an authority, a new certificate could not be checked
	}
	if len(i.own[role]) == 0 {
		return true
	}
	leaf := i.own[role][0].Leaf
	return leaf.NotAfter.Sub(i.now()) <= leafLife/2 || leaf.CheckSignatureFrom(i.trusted[0]) != nil
}

// Expires returns when the certificate of a role expires, or the zero time if there is none.
func (i *Identity) Expires(role Role) time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.own[role]) == 0 {
		return time.Time{}
	}
	return i.own[role][0].Leaf.NotAfter
}

// Server returns the TLS configuration of a server. It shows a switch's certificate, and admits
// only clients with a controller's certificate. It follows changes of the Identity.
func (i *Identity) Server() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS13, Time: i.time, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: x509.NewCertPool(), GetCertificate: i.serverCertificate}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		c := &tls.Config{MinVersion: tls.VersionTLS13, Time: i.time, ClientAuth: tls.RequireAndVerifyClientCert,
			ClientCAs: i.pool, GetCertificate: i.serverCertificate, NextProtos: base.NextProtos,
			SessionTicketsDisabled: true} // a ticket would let a client return that is no longer trusted
		legacy := i.legacy
		c.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.VerifiedChains) == 0 {
				return errors.New("the client has shown no certificate of an authority that is trusted here")
			}
			return allowed(Controller, s.VerifiedChains, legacy)
		}
		return c, nil
	}
	return base
}

// Client returns the TLS configuration of a client. It shows a controller's certificate. It talks
// only to the switch or agent of the node ServerName, which the caller must set. It follows changes
// of the Identity.
func (i *Identity) Client() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Time: i.time, GetClientCertificate: i.clientCertificate,
		// VerifyConnection checks the server's certificate instead. RootCAs would be copied, but
		// the authorities change while this configuration is in use.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			i.mu.Lock()
			pool, legacy := i.pool, i.legacy
			if legacy == nil && i.parted != nil && i.now().Before(i.partedUntil) {
				legacy = i.parted
				pool = pool.Clone()
				pool.AddCert(legacy.cert)
			}
			i.mu.Unlock()
			if s.ServerName == "" || len(s.PeerCertificates) == 0 {
				return errors.New("which node's switch this should be is not said")
			}
			between := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				between.AddCert(c)
			}
			chains, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between,
				DNSName: s.ServerName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
				CurrentTime: i.now()})
			if err != nil {
				return fmt.Errorf("the certificate of %s: %w", s.ServerName, err)
			}
			return allowed(Switch, chains, legacy)
		}}
}

// allowed returns an error unless a verified certificate has the role. It also accepts a
// certificate of the legacy authority, because that authority has no roles.
func allowed(role Role, chains [][]*x509.Certificate, legacy *Legacy) error {
	for _, chain := range chains {
		if role.is(chain[0]) || legacy != nil && chain[len(chain)-1].Equal(legacy.cert) {
			return nil
		}
	}
	return fmt.Errorf("the certificate of %v is not a %s's", chains[0][0].DNSNames, role)
}

func (i *Identity) serverCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.legacy != nil { // a controller of the previous version trusts only the legacy authority
		return i.legacy.certificate(i.node)
	}
	if len(i.own[Switch]) == 0 {
		return nil, fmt.Errorf("there is no certificate for %s yet: does an agent run on a control-plane node, which signs it?", i.node)
	}
	return i.own[Switch][0], nil
}

// clientCertificate returns the newest certificate that the server accepts. The server names the
// authorities that it accepts.
func (i *Identity) clientCertificate(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	have := slices.Clone(i.own[Controller])
	if i.legacy != nil {
		c, err := i.legacy.certificate(i.node)
		if err != nil {
			return nil, err
		}
		have = append(have, c)
	}
	for _, c := range have {
		if r.SupportsCertificate(c) == nil {
			return c, nil
		}
	}
	if len(have) == 0 {
		return nil, fmt.Errorf("there is no controller's certificate for %s yet", i.node)
	}
	return have[0], nil // the server's refusal is a better explanation than an error of this side
}

// parseCertificates parses one or more certificates in PEM.
func parseCertificates(b []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("there is a %s among the certificates", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no certificate in it")
	}
	return out, nil
}
