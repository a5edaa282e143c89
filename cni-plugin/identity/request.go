package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// Role is the purpose of a certificate.
type Role struct {
	name  string
	usage x509.ExtKeyUsage
}

// The roles. Their names are part of certificates and of signers' names.
var (
	Switch     = Role{"switch", x509.ExtKeyUsageServerAuth}
	Controller = Role{"controller", x509.ExtKeyUsageClientAuth}
)

// String implements fmt.Stringer.
func (r Role) String() string { return r.name }

// Signer returns the name of the Kubernetes signer for certificates of this role.
func (r Role) Signer() string { return "netcraq.io/" + r.name }

// RoleOf returns the role whose Kubernetes signer has this name. It returns false if there is none.
func RoleOf(signer string) (Role, bool) {
	for _, r := range []Role{Switch, Controller} {
		if r.Signer() == signer {
			return r, true
		}
	}
	return Role{}, false
}

func (r Role) subject() pkix.Name { return pkix.Name{Organization: []string{"netcraq:" + r.name}} }

// is reports whether a certificate has this role and no other.
func (r Role) is(c *x509.Certificate) bool {
	return slices.Equal(c.Subject.Organization, r.subject().Organization) &&
		slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{r.usage}) && !c.IsCA
}

// NewRequest makes a key and a request for a certificate in PEM (PKCS #10). The request does not
// contain the private key.
func NewRequest(role Role, node string) (key crypto.Signer, request []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key for %s: %w", node, err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: role.subject(),
		DNSNames: []string{node}}, k)
	if err != nil {
		return nil, nil, fmt.Errorf("asking for a certificate for %s: %w", node, err)
	}
	return k, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// Check parses a request for a certificate. It returns an error unless the request is for exactly
// this role of this node.
func Check(role Role, node string, request []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, errors.New("it is not one request in PEM")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("who asks does not have the key: %w", err)
	}
	if !slices.Equal(r.DNSNames, []string{node}) {
		return nil, fmt.Errorf("it is for %q, and who asks is on the node %q", r.DNSNames, node)
	}
	if len(r.IPAddresses)+len(r.EmailAddresses)+len(r.URIs) > 0 {
		return nil, errors.New("it is for more than a node's name")
	}
	if r.Subject.String() != role.subject().String() {
		return nil, fmt.Errorf("its subject is %q, not that of a %s, %q", r.Subject, role, role.subject())
	}
	if k, ok := r.PublicKey.(*ecdsa.PublicKey); !ok || k.Curve != elliptic.P256() {
		return nil, errors.New("its key is not one of ECDSA with P-256")
	}
	return r, nil
}
