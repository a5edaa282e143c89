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
	// clockSkew is the maximum difference between nodes' clocks.
	clockSkew = 5 * time.Minute
)

// Pair is a certificate and its key, in PEM.
type Pair struct{ Certificate, Key []byte }

// NewAuthority makes a certificate authority (CA). Each authority has a unique name, by which the
// two sides of a handshake tell each other which authorities they trust.
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

// Load reads an authority from PEM.
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

// Sign signs a request that Check has accepted. The certificate, in PEM, is valid for a week. It
// takes only the key from the request.
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

// Times of replacing an authority.
const (
	// replaceBefore is the time before an authority's end at which another replaces it.
	replaceBefore = authorityLife / 4
	// announceTime is the time for which all agents trust the next authority before it signs. They
	// check for a new one much more often.
	announceTime = 15 * time.Minute
	// parting is the time for which agents trust the previous authority after it has stopped
	// signing. By its end, all certificates from that authority have expired.
	parting = leafLife + time.Hour
)

// State is a cluster's authorities, of which one signs. The signing authority is replaced in steps.
// Certificates in use stay valid in every step:
//
//	A signs ──▶ A signs, B is trusted ──▶ B signs, A is trusted ──▶ B signs
type State struct {
	Signing   Pair
	Next      *Pair     // will sign next
	Announced time.Time // when agents could first learn of Next; zero: not yet
	Previous  []byte    // certificate of the authority that signed before; nil: none
	Promoted  time.Time // when Previous stopped signing
}

// Step takes the next step if one is due, and returns its description, or "". replace requests a
// new authority before the current one's time is over.
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

// Bundle is the set of authorities that agents must trust: certificates in PEM, the signing one's
// first.
func (s *State) Bundle() []byte {
	var out bytes.Buffer
	out.Write(s.Signing.Certificate)
	if s.Next != nil {
		out.Write(s.Next.Certificate)
	}
	out.Write(s.Previous)
	return out.Bytes()
}

// serialNumber is 127 random bits.
func serialNumber() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("a certificate's serial number: %w", err)
	}
	return n, nil
}
