// Package identity gives the agents of a cluster certificates, by which they authenticate each
// other. There are two kinds, and neither is valid as the other:
//
//	a switch's, for a server: every agent has one for its own node, and its switch and the agent's port show it
//	a controller's, for a client: an agent that may lead has one, and switches and agents let in nobody else
//
// So a key stolen from a node whose agent may not lead can impersonate only that node's switch, and
// opens nothing on another node.
//
// An agent makes its keys in memory and requests certificates (package kube does that, with
// CertificateSigningRequests). The authority that signs them is on the control plane. A certificate
// is valid for a week, and the agent renews it after half of that. Both authorities are trusted
// while one replaces another (State). Agents trust their public bundle.
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

// Identity is the certificates of a node's agent, and the authorities that it trusts. A new
// Identity is empty, and handshakes fail until it has both.
type Identity struct {
	node string
	now  func() time.Time

	mu      sync.Mutex
	trusted []*x509.Certificate // the first one signs
	pool    *x509.CertPool
	own     map[Role][]*tls.Certificate // the newest first
	legacy  *Legacy

	// parted is the legacy authority after its removal. Agents learn of the removal one after the
	// other, so its switches are trusted for a while longer. Its controllers are not.
	parted      *Legacy
	partedUntil time.Time
}

// partedTime is longer than all agents take to learn of a change.
const partedTime = 5 * time.Minute

// New makes an empty identity of a node's agent.
func New(node string) *Identity {
	return &Identity{node: node, now: time.Now, pool: x509.NewCertPool(), own: map[Role][]*tls.Certificate{}}
}

func (i *Identity) time() time.Time { return i.now() }

// Trust replaces the trusted authorities: certificates in PEM, the signing one's first.
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

// Believe also trusts the authority of agents of the previous version, as long as it exists; nil
// ends that trust.
func (i *Identity) Believe(l *Legacy) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if l == nil && i.legacy != nil {
		i.parted, i.partedUntil = i.legacy, i.now().Add(partedTime)
	}
	i.legacy = l
	i.fill()
}

// fill rebuilds the pool of trusted certificates.
func (i *Identity) fill() {
	i.pool = x509.NewCertPool()
	for _, c := range i.trusted {
		i.pool.AddCert(c)
	}
	if i.legacy != nil {
		i.pool.AddCert(i.legacy.cert)
	}
}

// Install adds an issued certificate, in PEM, with its key. It is an error if the certificate is
// not for this node, role and key, or if no trusted authority has signed it.
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
	// A certificate of a legacy authority has no role, so that authority is not in the pool.
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
		// the old one is for a switch that does not know the new one's authority yet
		if i.now().Before(c.Leaf.NotAfter) && len(kept) < 2 {
			kept = append(kept, c)
		}
	}
	i.own[role] = kept
	return nil
}

// Due reports whether a new certificate is needed: there is none, half of its life is over, or
// another authority signs.
func (i *Identity) Due(role Role) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.trusted) == 0 {
		return false // without an authority the new certificate could not be checked
	}
	if len(i.own[role]) == 0 {
		return true
	}
	leaf := i.own[role][0].Leaf
	return leaf.NotAfter.Sub(i.now()) <= leafLife/2 || leaf.CheckSignatureFrom(i.trusted[0]) != nil
}

// Expires is the end of a role's certificate, or the zero time if there is none.
func (i *Identity) Expires(role Role) time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.own[role]) == 0 {
		return time.Time{}
	}
	return i.own[role][0].Leaf.NotAfter
}

// Server is the TLS configuration of a server: it has a switch's certificate, and admits only
// clients with a controller's. It follows changes of the Identity.
func (i *Identity) Server() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS13, Time: i.time, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: x509.NewCertPool(), GetCertificate: i.serverCertificate}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		c := &tls.Config{MinVersion: tls.VersionTLS13, Time: i.time, ClientAuth: tls.RequireAndVerifyClientCert,
			ClientCAs: i.pool, GetCertificate: i.serverCertificate, NextProtos: base.NextProtos,
			SessionTicketsDisabled: true} // a client that is no longer trusted must not come back with a ticket
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

// Client is the TLS configuration of a client: it has a controller's certificate, and talks to the
// switch or agent of the node ServerName, which the user sets. It follows changes of the Identity.
func (i *Identity) Client() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Time: i.time, GetClientCertificate: i.clientCertificate,
		// RootCAs would be copied, but the authorities change while this configuration is in use.
		// So VerifyConnection checks the server's certificate.
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

// allowed returns an error unless a verified certificate has a role, or comes from the legacy
// authority, which has no roles.
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
	if i.legacy != nil { // a controller of the previous version knows only the legacy authority
		return i.legacy.certificate(i.node)
	}
	if len(i.own[Switch]) == 0 {
		return nil, fmt.Errorf("there is no certificate for %s yet: does an agent run on a control-plane node, which signs it?", i.node)
	}
	return i.own[Switch][0], nil
}

// clientCertificate is the newest certificate that the server accepts, by the authorities that it
// names.
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
	return have[0], nil // the server's error explains the refusal better than one of this side
}

// parseCertificates reads one or more certificates in PEM.
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
