package testutil

import (
	"crypto/tls"
	"encoding/pem"
	"testing"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/identity"
)

// Authority issues agents' identities without an API server.
type Authority struct {
	state  identity.State
	signer *identity.Authority
}

// NewAuthority makes an Authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{}
	_, err := a.state.Step(time.Now(), false)
	Must(t, err)
	a.signer, err = identity.Load(a.state.Signing)
	Must(t, err)
	return a
}

// Identity returns an agent's identity with certificates for these roles.
func (a *Authority) Identity(t testing.TB, node string, roles ...identity.Role) *identity.Identity {
	i, _ := a.Stolen(t, node, roles...)
	return i
}

// Stolen returns an agent's identity, and the configuration of a client that uses its newest
// certificate and trusts every server.
func (a *Authority) Stolen(t testing.TB, node string, roles ...identity.Role) (*identity.Identity, *tls.Config) {
	t.Helper()
	i := identity.New(node)
	Must(t, i.Trust(a.state.Bundle()))
	var conf *tls.Config
	for _, role := range roles {
		key, request, err := identity.NewRequest(role, node)
		Must(t, err)
		checked, err := identity.Check(role, node, request)
		Must(t, err)
		cert, err := a.signer.Sign(role, node, checked, time.Now())
		Must(t, err)
		Must(t, i.Install(role, key, cert))
		block, _ := pem.Decode(cert)
		own := &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
		conf = &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (
			*tls.Certificate, error) {
			return own, nil
		}}
	}
	return i, conf
}
