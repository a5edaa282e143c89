package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// soon is the remaining lifetime below which a certificate is reported. kubeadm or the operator
// must renew it.
const soon = 30 * 24 * time.Hour

// usualCertificates are kubeadm's certificates that NetCRAQ uses or trusts, at their paths in the
// agent's container.
var usualCertificates = []Certificate{
	{"/etc/kubernetes/pki/ca.crt", ""},
	{"/etc/kubernetes/pki/apiserver.crt", ""},
	{"/etc/kubernetes/pki/apiserver-etcd-client.crt", ""},
	{"/etc/kubernetes/pki/etcd/ca.crt", ""},
	{"/etc/kubernetes/pki/etcd/server.crt", "127.0.0.1"}, // the address that etcd-monitor connects to
	{"/pki/etcd-ca.crt", ""},
	{"/pki/client.crt", ""},
}

func certificates(ctx context.Context, l *look) {
	before := len(l.report.Findings)
	for _, c := range l.Certificates {
		l.certificateFile(c, c.File, true)
	}
	for _, c := range usualCertificates {
		l.certificateFile(c, l.path(c.File), false)
	}
	served := l.ServedCertificates
	if len(served) == 0 {
		for _, a := range ownAddresses() {
			served = append(served, net.JoinHostPort(a, "9559"), net.JoinHostPort(a, "9560"))
		}
	}
	for _, address := range served {
		l.served(ctx, address, len(l.ServedCertificates) > 0)
	}
	if len(l.report.Findings) == before {
		l.note("certificates", "there are none at the usual places; name yours with --certificate")
	}
}

// certificateFile checks the certificates of a file. If must is set, a missing file is a problem.
func (l *look) certificateFile(c Certificate, path string, must bool) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && !must:
		return
	case errors.Is(err, os.ErrNotExist):
		l.problem(c.File, "give the file that is there", "there is no such file")
		return
	case err != nil:
		l.unseen(c.File, "reading it", err)
		return
	}
	n := 0
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		n++
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			l.problem(c.File, "make it anew", "its certificate %d is not understood: %v", n, err)
			continue
		}
		name := c.Name
		if n > 1 {
			name = "" // only the first certificate of a file has the name to check
		}
		l.certificate(c.File, cert, name)
	}
	if n == 0 {
		l.problem(c.File, "it has to hold PEM, -----BEGIN CERTIFICATE-----", "it holds no certificate")
	}
}

// certificate reports whether a certificate is valid now, for the name if there is one, and for
// long enough.
func (l *look) certificate(subject string, c *x509.Certificate, name string) {
	whose := c.Subject.CommonName
	if whose == "" {
		whose = strings.Join(append(append([]string{}, c.DNSNames...), c.Subject.Organization...), ", ")
	}
	advice := "renew it (kubeadm certs renew all if kubeadm made it; agents renew their own), and restart the programs that use it"
	now := l.Now()
	switch left := c.NotAfter.Sub(now); {
	case left <= 0:
		l.problem(subject, advice, "%s: expired on %s", whose, c.NotAfter.Format(time.DateOnly))
	case now.Before(c.NotBefore):
		l.problem(subject, "look at both clocks", "%s: not valid before %s, which by this machine's clock is to come", whose, c.NotBefore.Format(time.DateTime))
	case left < soon && c.NotAfter.Sub(c.NotBefore) > 2*soon:
		l.warn(subject, advice, "%s: expires on %s, in %d days", whose, c.NotAfter.Format(time.DateOnly), int(left.Hours()/24))
	default:
		l.ok(subject, "%s: valid until %s", whose, c.NotAfter.Format(time.DateTime))
	}
	if name == "" {
		return
	}
	if err := c.VerifyHostname(name); err != nil {
		l.problem(subject, "make it anew with that name among its subject alternative names (kubeadm: etcd.local.serverCertSANs)",
			"%s: not for %s, where it is shown: %v", whose, name, err)
	}
}

// served checks the certificate of a server. If must is set, a server that does not answer is a
// problem.
func (l *look) served(ctx context.Context, address string, must bool) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	var shown *x509.Certificate
	// The certificate is only inspected, so it need not be trusted.
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) (err error) {
			if len(raw) > 0 {
				shown, err = x509.ParseCertificate(raw[0])
			}
			return err
		}}}
	c, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		c.Close()
	}
	switch {
	case shown != nil: // a certificate counts even if the server hung up because this client has none
		l.certificate(address, shown, "")
	case must:
		l.problem(address, "does the server run?", "no certificate was shown: %v", err)
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !refused(err):
		l.note(address, "something answers that shows no certificate: %v", err)
	}
}

// ownAddresses returns the addresses of this machine that other machines can use.
func ownAddresses() (out []string) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && len(out) < 8 {
			out = append(out, n.IP.String())
		}
	}
	return out
}

// ParseCertificate parses FILE or FILE=NAME.
func ParseCertificate(s string) (Certificate, error) {
	file, name, _ := strings.Cut(s, "=")
	if file == "" {
		return Certificate{}, fmt.Errorf("%q names no file; want FILE or FILE=NAME", s)
	}
	return Certificate{file, name}, nil
}
