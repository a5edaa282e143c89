// Package grpcconn has the common parts of the project's own HTTP/2 clients of etcd: the endpoints
// of etcd's clients, connections to them, and the status of a gRPC answer.
package grpcconn

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/api/unannounced"
)

// Endpoint is a server's address, as etcd's clients name it.
type Endpoint struct {
	Scheme    string      // http or https
	Network   string      // tcp or unix
	Address   string      // address to dial
	Authority string      // value of the header :authority
	TLS       *tls.Config // nil means without TLS
}

// Parse parses an endpoint. It is a URL with the scheme http, https, unix or unixs, or HOST:PORT.
// HOST:PORT is reached with TLS if secure is not nil.
func Parse(at string, secure *tls.Config) Endpoint {
	e := Endpoint{Scheme: "http", Network: "tcp", Address: at}
	withTLS := secure != nil
	if scheme, rest, ok := strings.Cut(at, ":"); ok {
		switch scheme {
		case "http", "https":
			if u, err := url.Parse(at); err == nil {
				e.Address = u.Host
			}
			withTLS = scheme == "https"
		case "unix", "unixs":
			e.Network, e.Address = "unix", strings.TrimPrefix(rest, "//")
			withTLS = scheme == "unixs"
		}
	}
	e.Authority = e.Address
	if e.Network == "unix" {
		e.Authority = "localhost"
	}
	if withTLS {
		e.Scheme = "https"
		if secure == nil {
			secure = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		e.TLS = secure.Clone()
		e.TLS.NextProtos = []string{"h2"}
		if e.TLS.ServerName == "" {
			host, _, err := net.SplitHostPort(e.Authority)
			if err != nil {
				host = e.Authority
			}
			e.TLS.ServerName = host
		}
	}
	return e
}

// Dial connects to the endpoint. The connection makes its system calls through package unannounced.
func (e *Endpoint) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, e.Network, e.Address)
	if err != nil {
		return nil, err
	}
	nc = unannounced.Conn(nc)
	if e.TLS == nil {
		return nc, nil
	}
	secured := tls.Client(nc, e.TLS)
	if err := secured.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return secured, nil
}

// Status parses the status in the trailers of an answer (gRPC over HTTP2, "Responses"). If there is
// no status, the code is Unknown.
func Status(fields []hpack.HeaderField) (code codes.Code, text string) {
	code = codes.Unknown
	for _, f := range fields {
		switch f.Name {
		case "grpc-status":
			if n, err := strconv.ParseUint(f.Value, 10, 32); err == nil {
				code = codes.Code(n)
			}
		case "grpc-message":
			if text = f.Value; strings.Contains(text, "%") {
				if plain, err := url.PathUnescape(text); err == nil {
					text = plain
				}
			}
		}
	}
	return code, text
}
