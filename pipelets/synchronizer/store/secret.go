package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/netcraq/netcraq/pipelets/core"
)

// Credentials are what a secret has.
type Credentials struct {
	Username string
	Password string
	TLS      *tls.Config // nil: the secret has no certificates
}

// ReadSecret reads the files ca.crt, tls.crt, tls.key, username and password of a folder in a
// folder, as far as they are there.
func ReadSecret(folder, name string) (c Credentials, err error) {
	if c, err = readSecret(filepath.Join(folder, name)); err != nil {
		return c, core.Errorf(core.Refused, "the secret %s: %w", name, err)
	}
	return c, nil
}

func readSecret(dir string) (c Credentials, err error) {
	if _, err := os.Stat(dir); err != nil {
		return c, err
	}
	files := map[string]string{}
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key", "username", "password"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return c, err
		}
		files[name] = strings.TrimRight(string(b), "\n")
	}
	c.Username, c.Password = files["username"], files["password"]
	if files["ca.crt"] == "" && files["tls.crt"] == "" {
		return c, nil
	}
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if files["ca.crt"] != "" {
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM([]byte(files["ca.crt"])) {
			return c, errors.New("ca.crt has no certificate")
		}
	}
	if files["tls.crt"] != "" {
		pair, err := tls.X509KeyPair([]byte(files["tls.crt"]), []byte(files["tls.key"]))
		if err != nil {
			return c, err
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
