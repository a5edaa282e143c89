package identity

import (
	"bytes"
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
	"time"
)

const (
	authorityLife = 2 * 365 * 24 * time.Hour
	leafLife      = 7 * 24 * time.Hour
	// clockSkew is the maximum difference between the clocks of two nodes.
	clockSkew = 5 * time.Minute
)

// Pair is a certificate and its private key, in PEM.
type Pair struct{ Certificate, Key []byte }

// NewAuthority makes a certificate authority (CA). Each authority has a unique name. In a
// handshake, each side sends the names of the authorities that it trusts.
func NewAuthority(now time.Time) (Pair, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making the authority's key: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "NetCRAQ authority " +
		rand.Text()[:8]}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		return Pair{}, fmt.Errorf("making the authority's certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return Pair{}, fmt.Errorf("the authority's key: %w", err)
	}
	return Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})}, nil
}

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Load makes an Authority from a certificate and a key in PEM.
func Load(p Pair) (*Authority, error) {
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return nil, fmt.Errorf("the agents' authority: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("the agents' authority: the certificate is not one that signs others")
	}
	return &Authority{cert: pair.Leaf, key: signer}, nil
}

// Sign signs a request that Check has accepted. It takes only the key from the request. The
// certificate, in PEM, is valid for a week.
func (a *Authority) Sign(role Role, node string, request *x509.CertificateRequest, now time.Time) ([]byte, error) {
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	until := now.Add(leafLife)
	if until.After(a.cert.NotAfter) {
		return nil, fmt.Errorf("the agents' authority ends on %s, before a certificate would: it has to be replaced", a.cert.NotAfter.Format(time.DateOnly))
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: role.subject(), DNSNames: []string{node},
		NotBefore: now.Add(-clockSkew), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{role.usage},
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, request.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %s: %w", node, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// Durations in the replacement of an authority.
const (
	// replaceBefore is how long before an authority's end another authority replaces it.
	replaceBefore = authorityLife / 4
	// announceTime is how long all agents trust the next authority before it signs. Agents check
	// for a new authority much more often.
	announceTime = 15 * time.Minute
	// parting is how long agents trust the previous authority after it has stopped signing. At the
	// end of this time, all certificates from that authority have expired.
	parting = leafLife + time.Hour
)

// State has the authorities of a cluster. One of them signs. The signing authority is replaced in
// steps. Certificates in use stay valid in every step:
//
//	A signs ──▶ A signs, B is trusted ──▶ B signs, A is trusted ──▶ B signs
type State struct {
	Signing   Pair
	Next      *Pair     // authority that will sign next
	Announced time.Time // when agents could first learn of Next; zero if they cannot yet
	Previous  []byte    // certificate of the authority that signed before, or nil
	Promoted  time.Time // when Previous stopped signing
}

// Step takes the next step of the replacement if it is due. It returns a description of the step,
// or "". If replace is set, Step begins a replacement before the current authority's time is over.
func (s *State) Step(now time.Time, replace bool) (what string, err error) {
	if len(s.Signing.Certificate) == 0 {
		s.Signing, err = NewAuthority(now)
		return "an authority is made", err
	}
	a, err := Load(s.Signing)
	if err != nil {
		return "", err
	}
	switch {
	case s.Next != nil && !s.Announced.IsZero() && now.Sub(s.Announced) >= announceTime:
		if _, err := Load(*s.Next); err != nil {
			return "", err
		}
		s.Previous, s.Promoted = s.Signing.Certificate, now
		s.Signing, s.Next, s.Announced = *s.Next, nil, time.Time{}
		return "the next authority signs, and the last one is trusted yet", nil
	case s.Next == nil && s.Previous == nil && (replace || a.cert.NotAfter.Sub(now) < replaceBefore):
		next, err := NewAuthority(now)
		if err != nil {
			return "", err
		}
		s.Next = &next
		return "another authority is to sign, and is trusted from now on", nil
	case s.Previous != nil && now.Sub(s.Promoted) >= parting:
		s.Previous, s.Promoted = nil, time.Time{}
		return "the last authority is not trusted any more", nil
	}
	return "", nil
}

// Bundle returns the certificates of all authorities that agents must trust, in PEM. The signing
// authority's certificate is the first.
func (s *State) Bundle() []byte {
	var out bytes.Buffer
	out.Write(s.Signing.Certificate)
	if s.Next != nil {
		out.Write(s.Next.Certificate)
	}
	out.Write(s.Previous)
	return out.Bytes()
}

// serialNumber returns a random number of 127 bits.
func serialNumber() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("a certificate's serial number: %w", err)
	}
	return n, nil
}
