package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

// Credentials are the credentials in a Secret, decoded.
type Credentials struct {
	Username string
	Password string
	TLS      *tls.Config // nil if the secret has no certificates
}

// Secrets reads a pipelet's secrets.
type Secrets interface {
	// Read returns the keys of a secret with their values.
	Read(ctx context.Context, name string) (map[string][]byte, error)
}

// secretKeys lists the keys of secrets that stores use.
var secretKeys = []string{"ca.crt", "tls.crt", "tls.key", "username", "password"}

// Folder reads secrets from a folder. The folder contains a subfolder for each secret, with one
// file for each key.
type Folder string

// Read implements Secrets.
func (f Folder) Read(_ context.Context, name string) (map[string][]byte, error) {
	dir := filepath.Join(string(f), name)
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	for _, key := range secretKeys {
		b, err := os.ReadFile(filepath.Join(dir, key))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			values[key] = b
		}
	}
	return values, nil
}

// ReadSecret reads those of the keys ca.crt, tls.crt, tls.key, username and password that a secret
// has.
func ReadSecret(ctx context.Context, secrets Secrets, name string) (c Credentials, err error) {
	values, err := secrets.Read(ctx, name)
	if err == nil {
		c, err = credentials(values)
	}
	if err != nil {
		return c, exactlyonce.Errorf(exactlyonce.Refused, "the secret %s: %w", name, err)
	}
	return c, nil
}

func credentials(values map[string][]byte) (c Credentials, err error) {
	text := func(key string) string { return strings.TrimRight(string(values[key]), "\n") }
	c.Username, c.Password = text("username"), text("password")
	if text("ca.crt") == "" && text("tls.crt") == "" {
		return c, nil
	}
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if text("ca.crt") != "" {
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(values["ca.crt"]) {
			return c, errors.New("ca.crt has no certificate")
		}
	}
	if text("tls.crt") != "" {
		pair, err := tls.X509KeyPair(values["tls.crt"], values["tls.key"])
		if err != nil {
			return c, err
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
