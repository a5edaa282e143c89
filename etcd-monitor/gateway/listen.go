package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/netcraq/netcraq/etcd-monitor/relay"
)

// Listen listens for clients at a URL as etcd's --listen-client-urls has them: http://HOST:PORT,
// https://HOST:PORT (with the certificates), unix://PATH, unixs://PATH. The certificate, its key,
// the CA and the revocation list are read again for each connection, so that new ones hold as soon
// as they are there.
func Listen(u url.URL, certs transport.TLSInfo) (net.Listener, error) {
	network, address, secure := "tcp", u.Host, false
	switch u.Scheme {
	case "http":
	case "https":
		secure = true
	case "unix", "unixs":
		network, address, secure = "unix", u.Host+u.Path, u.Scheme == "unixs"
		os.Remove(address) // of a process that is gone; one that lives keeps its socket, under no name
	default:
		return nil, fmt.Errorf("gateway: listening at %s: the scheme %q is none of http, https, unix, unixs", &u, u.Scheme)
	}
	var config *tls.Config
	if secure {
		if certs.Empty() {
			return nil, fmt.Errorf("gateway: listening at %s: it needs a certificate and its key", &u)
		}
		var err error
		if config, err = serverTLS(certs); err != nil {
			return nil, fmt.Errorf("gateway: the certificates for clients: %w", err)
		}
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return serverTLS(certs) }
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), network, address)
	if err != nil {
		return nil, fmt.Errorf("gateway: listening at %s: %w", &u, err)
	}
	l = unannounced{l}
	if secure {
		l = tls.NewListener(l, config)
	}
	return l, nil
}

// unannounced is a listener whose connections are relay.Unannounced.
type unannounced struct{ net.Listener }

// Accept implements [net.Listener].
func (l unannounced) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return relay.Unannounced(c), nil
}

// serverTLS is etcd's TLS for its clients.
func serverTLS(certs transport.TLSInfo) (*tls.Config, error) {
	c, err := certs.ServerConfig()
	if err != nil {
		return nil, err
	}
	if certs.CRLFile != "" {
		certs.ConfigureCRLVerification(c)
	}
	// The server's preference decides. A client that speaks both means HTTP (curl, probes): gRPC's
	// offer HTTP/2 alone.
	c.NextProtos = []string{"http/1.1", "h2"}
	return c, nil
}

// endWith is an answer's body that ends a context with it.
type endWith struct {
	io.ReadCloser
	end context.CancelFunc
}

func (b endWith) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
