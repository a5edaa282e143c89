package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/netcraq/netcraq/api/unannounced"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

// Listen listens for clients at a URL in the form of etcd's --listen-client-urls: http://HOST:PORT,
// https://HOST:PORT (with the certificates), unix://PATH, unixs://PATH. For each connection it
// reads the certificate, its key, the CA and the revocation list again. So changed files apply at
// once.
func Listen(u url.URL, certs transport.TLSInfo) (net.Listener, error) {
	network, address, secure := "tcp", u.Host, false
	switch u.Scheme {
	case "http":
	case "https":
		secure = true
	case "unix", "unixs":
		network, address, secure = "unix", u.Host+u.Path, u.Scheme == "unixs"
		// This removes the socket of an ended process. A running process would lose only the
		// socket's name.
		os.Remove(address)
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
	l = unannouncedListener{l}
	if secure {
		l = tls.NewListener(l, config)
	}
	return l, nil
}

// unannouncedListener is a listener that makes its connections unannounced (package unannounced).
type unannouncedListener struct{ net.Listener }

// Accept implements [net.Listener].
func (l unannouncedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return unannounced.Conn(c), nil
}

// serverTLS returns the TLS configuration for clients. It is the same as etcd's.
func serverTLS(certs transport.TLSInfo) (*tls.Config, error) {
	c, err := certs.ServerConfig()
	if err != nil {
		return nil, err
	}
	if certs.CRLFile != "" {
		certs.ConfigureCRLVerification(c)
	}
	// The server's preference decides. A client that offers both protocols, such as curl or a
	// probe, wants HTTP. gRPC clients offer only HTTP/2.
	c.NextProtos = []string{"http/1.1", "h2"}
	return c, nil
}

// endWith is a response body that ends a context when it is closed.
type endWith struct {
	io.ReadCloser
	end context.CancelFunc
}

func (b endWith) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// Pauses after a connection could not be accepted (the first and the longest pause), and the
// interval of log messages about that.
const (
	acceptShortest = 5 * time.Millisecond
	acceptLongest  = time.Second
	acceptSaid     = time.Minute
)

// accepting is a listener that survives temporary errors. If a connection cannot be accepted
// because this process or the machine is out of file descriptors or memory, it logs and counts the
// error, and retries. The caller handles permanent errors.
type accepting struct {
	net.Listener
	ctx     context.Context
	log     *slog.Logger
	metrics *hotkeys.Metrics
	said    time.Time // time of the last message that clients cannot connect
	told    bool      // the problem was logged, but its end was not logged yet
}

// Accept implements [net.Listener]. Only one goroutine calls it.
func (l *accepting) Accept() (net.Conn, error) {
	for wait := acceptShortest; ; wait = min(2*wait, acceptLongest) {
		c, err := l.Listener.Accept()
		if err == nil {
			if l.told {
				l.told = false
				l.log.Info("clients can connect again", "address", l.Addr().String(), "after", time.Since(l.said).Round(time.Millisecond))
			}
			return c, nil
		}
		if !goesBy(err) || l.ctx.Err() != nil {
			return nil, err
		}
		l.metrics.AcceptError()
		if time.Since(l.said) >= acceptSaid {
			l.said, l.told = time.Now(), true
			l.log.Error("new clients cannot connect: existing clients are served, and new ones wait", "address", l.Addr().String(), "error", err, "do", advice(err))
		}
		select {
		case <-time.After(wait):
		case <-l.ctx.Done():
			return nil, err
		}
	}
}

// goesBy reports whether an error of accept is temporary (accept(2)). Such an error concerns only
// one connection, or resources that may become available.
func goesBy(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED, syscall.EPROTO, syscall.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// advice returns the remedy for a temporary error of accept.
func advice(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "raise this process's limit of open files (ulimit -n, systemd's LimitNOFILE), or have fewer connections"
	case errors.Is(err, syscall.ENFILE):
		return "raise the machine's limit of open files (sysctl fs.file-max)"
	case errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
		return "give the machine memory"
	}
	return "nothing, if it does not come back"
}
