package tunnel

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// tooMany reports whether the process or the machine has no free file descriptors. This state is
// temporary.
func tooMany(err error) bool { return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) }

// validity is the lifetime of a certificate that this package makes. The server makes a new one at
// each start.
const validity = 30 * 24 * time.Hour

// MakeCertificate makes a self-signed certificate for a host, which is a name or an IP address.
func MakeCertificate(host string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "netcraq dev"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(host); ip != nil {
		t.IPAddresses = []net.IP{ip}
	} else if host != "" {
		t.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

const fingerprintPrefix = "sha256:"

// Fingerprint returns a text that identifies a certificate. der is the certificate in DER form.
func Fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return fingerprintPrefix + hex.EncodeToString(sum[:])
}

// Pinned returns a configuration that accepts only a server whose certificate has this fingerprint.
func Pinned(fingerprint string) (*tls.Config, error) {
	digits, ok := strings.CutPrefix(strings.ToLower(fingerprint), fingerprintPrefix)
	if want, err := hex.DecodeString(digits); !ok || err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("a fingerprint is %s and 64 hexadecimal digits, as netcraq dev --listen prints it", fingerprintPrefix)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection checks the fingerprint instead of the issuer
		VerifyConnection: func(s tls.ConnectionState) error {
			got := Fingerprint(s.PeerCertificates[0].Raw)
			if subtle.ConstantTimeCompare([]byte(got), []byte(fingerprintPrefix+digits)) != 1 {
				return fmt.Errorf("the server's certificate has the fingerprint %s. If the server was started again, "+
					"copy its fingerprint; otherwise another server answers", got)
			}
			return nil
		}}, nil
}

// SignedBy returns a configuration that accepts a server whose certificate is for the host and
// signed by a CA. The CA is in the PEM file at path. If path is "", the CAs that this machine
// trusts are accepted.
func SignedBy(path, address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: host}
	if path == "" {
		return cfg, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s has no certificate (PEM)", path)
	}
	return cfg, nil
}

// minToken is the minimum length of a token, in bytes.
const minToken = 32

// ReadToken reads a token from a file that only its owner may read.
func ReadToken(path string) (string, error) {
	// With O_NONBLOCK, opening a pipe that has no writer does not block.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s: a token must be in a file that only its owner can read. Run chmod 600 %s", path, path)
	}
	b := make([]byte, maxLine)
	n, err := f.Read(b)
	if err != nil && n == 0 {
		return "", fmt.Errorf("%s has no token: %w. Remove the file to get a new one", path, err)
	}
	token := strings.TrimSpace(string(b[:n]))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") || n > maxLine/2 {
		return "", fmt.Errorf("%s: a token is one word of %d to %d bytes. Remove the file to get a new one", path, minToken, maxLine/2)
	}
	return token, nil
}

// Token reads the token from a file. If the file does not exist, Token makes a token and the file.
func Token(path string) (string, error) {
	token := rand.Text() + rand.Text()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return ReadToken(path)
	}
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintln(f, token)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
	}
	return token, err
}
