// Package testcerts makes certificate authorities and certificates for tests.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// Authority is a test's certificate authority.
type Authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// File is the path of the authority's certificate (PEM).
	File string
}

var serial atomic.Int64

// NewAuthority makes a certificate authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial.Add(1)),
		Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	var der []byte
	a.key, der = sign(t, template, template, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.File = filepath.Join(a.dir, "ca.pem")
	write(t, a.File, "CERTIFICATE", der)
	return a
}

// Issue writes a certificate and its key to NAME.pem and NAME-key.pem. It replaces existing files.
// The certificate is for servers and clients at this machine's loopback address, with or without a
// common name. It returns the certificate and its unique serial number. If names are given, the
// certificate is for servers with these names, and not for loopback.
func (a *Authority) Issue(name, commonName string, names ...string) (transport.TLSInfo, *big.Int) {
	a.t.Helper()
	number := big.NewInt(serial.Add(1))
	template := &x509.Certificate{SerialNumber: number, Subject: pkix.Name{CommonName: commonName,
		Organization: []string{"test"}}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}}
	if len(names) > 0 {
		template.IPAddresses, template.DNSNames = nil, names
	}
	key, der := sign(a.t, template, a.cert, a.key)
	info := transport.TLSInfo{CertFile: filepath.Join(a.dir, name+".pem"), KeyFile: filepath.Join(a.dir, name+
		"-key.pem"), TrustedCAFile: a.File}
	b, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	write(a.t, info.KeyFile, "EC PRIVATE KEY", b)
	write(a.t, info.CertFile, "CERTIFICATE", der)
	return info, number
}

// Revoke writes a revocation list (DER) with these serial numbers, and returns its path.
func (a *Authority) Revoke(numbers ...*big.Int) string {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(serial.Add(1)), ThisUpdate: time.Now(),
		NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range numbers {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: n, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	file := filepath.Join(a.dir, "revoked.crl")
	if err := os.WriteFile(file, der, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// sign makes a key and a certificate for it. If signer is nil, the certificate is self-signed.
func sign(t testing.TB, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}

func write(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
