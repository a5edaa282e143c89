package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/tlsutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/internal/configfile"
)

// options are the command-line options.
type options struct {
	file      string // file that contains further flags
	endpoints []string
	sync      time.Duration
	discovery struct { // DNS discovery of etcd's endpoints
		domain, name string
		insecure     bool
	}
	towards  transport.TLSInfo // TLS for connections to etcd
	dataDir  string
	ownEtcd  bool // etcd runs in this process
	embedded string

	listen    []string
	advertise []string
	clients   transport.TLSInfo
	tls       struct { // TLS for connections of clients
		min, max string
		ciphers  []string
	}
	cors, hosts []string
	profiles    bool
	relay       bool
	toLeader    bool
	// readsToLeader sends linearizable reads with small answers to the leader.
	readsToLeader bool
	namespace     string
	metrics       string

	maxRequestBytes                     uint
	maxStreams                          uint32
	keepAliveMin, keepAlive, keepAliveT time.Duration

	controller  string
	token       string // file with the token for connecting to the controller over TCP
	sealAge     time.Duration
	prefix      string
	controllers []string // prefixes of the controllers' keys in etcd
	user        string
	password    string // file with the password of the gateway's user
	secret      string // content of the password file

	topKeys  int
	logLevel string
}

// Defaults of flags. The ports are next to those of etcd's own grpc-proxy.
const (
	defaultListen  = "http://127.0.0.1:23790"
	defaultMetrics = "127.0.0.1:23791"
	defaultDataDir = "etcd-monitor.etcd"

	defaultControllers = "/netcraq/"
)

func (o *options) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	o.flagsOfEtcd(f, " (default: run an etcd in this process)")
	o.flagReserved(f)
	f.StringVar(&o.dataDir, "data-dir", "", "directory for the data of the etcd in this process (default "+defaultDataDir+")")
	f.StringVar(&o.embedded, "embedded-client-address", "", "loopback address of the etcd in this process (default: a free port)")

	f.StringSliceVar(&o.listen, "listen-client-urls", []string{defaultListen}, "URLs to listen on for clients; https needs --cert-file")
	f.StringSliceVar(&o.advertise, "advertise-client-urls", nil, "URLs to return to clients that list etcd's members (default: the members' own, so that such clients bypass the gateway)")
	f.StringVar(&o.clients.CertFile, "cert-file", "", "certificate to present to clients (PEM)")
	f.StringVar(&o.clients.KeyFile, "key-file", "", "private key of --cert-file (PEM)")
	f.BoolVar(&o.clients.ClientCertAuth, "client-cert-auth", false, "require a client certificate signed by --trusted-ca-file")
	f.StringVar(&o.clients.TrustedCAFile, "trusted-ca-file", "", "CA certificates that must have signed clients' certificates (PEM)")
	f.StringVar(&o.clients.CRLFile, "client-crl-file", "", "list of revoked client certificates (DER); it makes a client certificate mandatory")
	f.StringVar(&o.tls.min, "tls-min-version", string(tlsutil.TLSVersion12), "oldest TLS version to accept: TLS1.2 or TLS1.3")
	f.StringVar(&o.tls.max, "tls-max-version", "", "newest TLS version to accept (default: no limit)")
	f.StringSliceVar(&o.tls.ciphers, "listen-cipher-suites", nil, "cipher suites to accept with TLS1.2, by their IANA names (default: those that Go considers secure)")
	f.StringSliceVar(&o.cors, "cors", []string{"*"}, "web origins from which browsers may use the HTTP pages (*: all)")
	f.StringSliceVar(&o.hosts, "host-whitelist", []string{"*"}, "host names under which the HTTP pages are served in plain text (*: any)")
	f.BoolVar(&o.profiles, "enable-pprof", false, "serve the gateway's profiles at /debug/pprof/ of the client URLs")
	f.BoolVar(&o.relay, "relay", true, "relay requests for keys that are not placed as HTTP/2 frames, for less than half of the processor time (=false: serve all by gRPC)")
	f.BoolVar(&o.toLeader, "writes-to-leader", true, "send writes directly to etcd's leader (=false: to the members in turn)")
	f.BoolVar(&o.readsToLeader, "reads-to-leader", true, "send linearizable reads with small answers (up to 4 KiB) to the leader, too, at most 64 at once (=false, or --writes-to-leader=false: to the members in turn)")
	f.StringVar(&o.namespace, "namespace", "", "prefix that the gateway adds to clients' key names at etcd; clients do not see it")
	f.StringVar(&o.metrics, "metrics-addr", defaultMetrics, "HOST:PORT for the gateway's own /metrics (\"\": none; "+gateway.OwnMetrics+" of the client URLs has them without key names)")

	f.StringVar(&o.controller, "controller", "", "read placed keys from the network; admin API of netcraq-controller, unix:///PATH or HOST:PORT. Of several with commas the first that answers is used (default: etcd answers all requests)")
	f.StringVar(&o.token, "controller-token", "", "file with the controller's token for HOST:PORT; the token must permit changes")

	f.DurationVar(&o.sealAge, "seal-age", seal.DefaultAge, "age at which a gateway replaces the key that seals cells in the network (0: only \"etcd-monitor seal rotate\" replaces it)")

	f.UintVar(&o.maxRequestBytes, "max-request-bytes", gateway.DefaultMaxRequestBytes, "largest request of a client, at least etcd's own limit (docs/etcd.md has the margin that --controller needs)")
	f.Uint32Var(&o.maxStreams, "max-concurrent-streams", gateway.DefaultMaxConcurrentStreams, "number of concurrent requests on one connection")
	f.DurationVar(&o.keepAliveMin, "grpc-keepalive-min-time", gateway.DefaultKeepAliveMinTime, "shortest interval between a client's keep-alive pings")
	f.DurationVar(&o.keepAlive, "grpc-keepalive-interval", gateway.DefaultKeepAliveInterval, "idle time after which the gateway pings a client")
	f.DurationVar(&o.keepAliveT, "grpc-keepalive-timeout", gateway.DefaultKeepAliveTimeout, "time to wait for the answer to a ping before closing the connection")

	f.StringVar(&o.file, configfile.Flag, "", "YAML `FILE` with flags, one in a line, as top-keys: 50; the command line has precedence")
	f.IntVar(&o.topKeys, "top-keys", hotkeys.DefaultTop, "number of most-read keys that /metrics names")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

// flagsOfEtcd defines the flags that all commands have: etcd's endpoints, the user, and the prefix
// of the gateways' own keys.
func (o *options) flagsOfEtcd(f *pflag.FlagSet, without string) {
	f.StringSliceVar(&o.endpoints, "endpoints", nil, "etcd's client URLs"+without)
	f.DurationVar(&o.sync, "endpoints-auto-sync-interval", 0, "interval at which the member list is read from etcd and replaces --endpoints (0: never)")
	f.StringVar(&o.discovery.domain, "discovery-srv", "", "read etcd's client URLs from the SRV records _etcd-client-ssl._tcp and _etcd-client._tcp of this domain, instead of --endpoints")
	f.StringVar(&o.discovery.name, "discovery-srv-name", "", "suffix of \"etcd-client\" and \"etcd-client-ssl\" in the records' names, after a dash")
	f.BoolVar(&o.discovery.insecure, "insecure-discovery", false, "accept an etcd from DNS without a certificate for that domain")
	f.StringVar(&o.towards.TrustedCAFile, "cacert", "", "CA certificates that must have signed etcd's certificate (PEM)")
	f.StringVar(&o.towards.CertFile, "cert", "", "certificate to present to etcd (PEM); leave its common name empty, because etcd may read that as a user's name")
	f.StringVar(&o.towards.KeyFile, "key", "", "private key of --cert (PEM)")
	f.BoolVar(&o.towards.InsecureSkipVerify, "insecure-skip-tls-verify", false, "accept any certificate from etcd; only for tests, because anyone on the path can then impersonate etcd")
	f.StringVar(&o.user, "user", "", "etcd user for the gateways' own keys, if etcd's authentication is enabled; it must be able to read and write all keys under --prefix")
	f.StringVar(&o.password, "password-file", "", "file with this user's password")
	f.StringVar(&o.prefix, "prefix", placement.DefaultPrefix, "prefix of the gateways' own keys in etcd; the controller and all gateways need the same")
}

// flagReserved defines the flag for commands that distinguish clients' keys from the project's own
// keys.
func (o *options) flagReserved(f *pflag.FlagSet) {
	f.StringSliceVar(&o.controllers, "etcd-prefix", []string{defaultControllers}, "prefixes of the controllers' own keys in etcd, as their --etcd-prefix sets them. With --controller, clients cannot read, write or watch these keys or those under --prefix")
}

// reserved returns the set of keys that clients must not use.
func (o *options) reserved() reserved.Keys {
	return reserved.With(append(slices.Clone(o.controllers), o.prefix)...)
}

// checkOwn checks the options for the gateways' own keys in etcd, and reads the password.
func (o *options) checkOwn() error {
	if len(o.prefix) < 2 || !strings.HasSuffix(o.prefix, "/") || !utf8.ValidString(o.prefix) {
		return fmt.Errorf("--prefix %q: give some text that ends with a slash, such as %s: every key that begins with it is the gateways'", o.prefix, placement.DefaultPrefix)
	}
	for _, p := range o.controllers {
		if p == "" {
			return fmt.Errorf("--etcd-prefix: pass the controllers' prefix, such as %s: with an empty one clients could use no key", defaultControllers)
		}
	}
	if (o.user == "") != (o.password == "") {
		return errors.New("--user and --password-file: give both, or neither")
	}
	if o.password != "" {
		b, err := os.ReadFile(o.password)
		if err != nil {
			return fmt.Errorf("--password-file: %w", err)
		}
		o.secret = strings.TrimRight(string(b), "\r\n")
	}
	return nil
}

// check finds mistakes in the options before anything is started. Its errors name the remedy.
func (o *options) check() (level slog.Level, listen []url.URL, err error) {
	fail := func(format string, a ...any) (slog.Level, []url.URL, error) {
		return level, nil, badInput{fmt.Errorf(format, a...)}
	}
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return fail("--log-level %s: give debug, info, warn or error", o.logLevel)
	}
	if err := o.checkUpstream(); err != nil {
		return level, nil, badInput{err}
	}
	if (o.clients.CertFile == "") != (o.clients.KeyFile == "") {
		return fail("--cert-file and --key-file: give both, or neither")
	}
	if o.clients.ClientCertAuth && o.clients.TrustedCAFile == "" {
		return fail("--client-cert-auth: give --trusted-ca-file too, which says whose certificates are accepted")
	}
	if o.clients.CRLFile != "" {
		if o.clients.TrustedCAFile == "" {
			return fail("--client-crl-file: give --trusted-ca-file too: without it clients show no certificates that could be revoked")
		}
		b, err := os.ReadFile(o.clients.CRLFile)
		if err != nil {
			return fail("--client-crl-file: %w", err)
		}
		if _, err := x509.ParseRevocationList(b); err != nil {
			return fail("--client-crl-file %s: %w (it has to be DER: openssl crl -outform DER makes it)", o.clients.CRLFile, err)
		}
	}
	if len(o.listen) == 0 {
		return fail("--listen-client-urls: give at least one")
	}
	secure := 0
	for _, s := range o.listen {
		u, err := clientURL(s)
		if err != nil {
			return fail("--listen-client-urls: %w", err)
		}
		if u.Scheme == "https" || u.Scheme == "unixs" {
			secure++
			if o.clients.CertFile == "" {
				return fail("--listen-client-urls %s: give --cert-file and --key-file, or use http", s)
			}
		}
		listen = append(listen, *u)
	}
	if secure == 0 && (o.clients.CertFile != "" || o.clients.ClientCertAuth || o.clients.TrustedCAFile != "") {
		return fail("--listen-client-urls %s: certificates are given, but plain text is spoken there; write https", strings.Join(o.listen, ","))
	}
	if err := o.checkVersions(); err != nil {
		return level, nil, badInput{err}
	}
	for _, origin := range o.cors {
		if u, err := url.Parse(origin); origin != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "") {
			return fail("--cors %s: give origins such as https://HOST:PORT, or *", origin)
		}
	}
	if secure > 0 {
		if _, err := o.clients.ServerConfig(); err != nil {
			return fail("--cert-file, --key-file, --trusted-ca-file: %w", err)
		}
	}
	for _, s := range o.advertise {
		if _, err := clientURL(s); err != nil {
			return fail("--advertise-client-urls: %w", err)
		}
	}
	if o.metrics != "" {
		if _, _, err := net.SplitHostPort(o.metrics); err != nil {
			return fail("--metrics-addr %s: give HOST:PORT", o.metrics)
		}
	}
	if o.token != "" {
		if o.controller == "" {
			return fail("--controller-token: give the controller's address, too (--controller HOST:PORT)")
		}
		if _, err := os.ReadFile(o.token); err != nil {
			return fail("--controller-token: %w", err)
		}
	}
	for _, c := range strings.Split(o.controller, ",") {
		if path, ok := strings.CutPrefix(c, "unix://"); ok {
			if !strings.HasPrefix(path, "/") {
				return fail("--controller %s: give the path of the controller's socket, such as %s", c, admin.SystemSocket)
			}
			continue
		}
		if o.controller == "" {
			break
		}
		host := strings.TrimPrefix(strings.TrimPrefix(c, "http://"), "https://")
		if _, _, err := net.SplitHostPort(strings.TrimSuffix(host, "/")); err != nil {
			return fail("--controller %s: give the controller's admin address, unix:///PATH or HOST:PORT (its --admin says which)", c)
		}
	}
	if o.sealAge < 0 || o.sealAge > 0 && o.sealAge < time.Minute {
		return fail("--seal-age %v: give a minute or more, or 0 for no age", o.sealAge)
	}
	if err := o.checkOwn(); err != nil {
		return level, nil, badInput{err}
	}
	if o.controller != "" && o.namespace != "" {
		if own := o.reserved(); len(own.Without(o.namespace, clientv3.GetPrefixRangeEnd(o.namespace))) == 0 {
			return fail("--namespace %s: the keys under %s are NetCRAQ's own: give another one", o.namespace, strings.Join(own.Prefixes(), ", "))
		}
	}
	if o.user != "" && o.controller == "" {
		return fail("--user: clients have their own names; this one is for the gateway's business with --controller, which is not given")
	}
	if o.topKeys < 1 || o.topKeys > 10_000 {
		return fail("--top-keys %d: give a number from 1 to 10000", o.topKeys)
	}
	if o.maxRequestBytes == 0 || o.maxRequestBytes > 1<<30 {
		return fail("--max-request-bytes %d: give a number from 1 to %d", o.maxRequestBytes, 1<<30)
	}
	if o.maxStreams == 0 {
		return fail("--max-concurrent-streams 0: nobody could ask anything")
	}
	for name, d := range map[string]time.Duration{"min-time": o.keepAliveMin, "interval": o.keepAlive, "timeout": o.keepAliveT} {
		if d <= 0 {
			return fail("--grpc-keepalive-%s %v: give a time above 0", name, d)
		}
	}
	return level, listen, nil
}

// checkUpstream checks the options for connecting to etcd.
func (o *options) checkUpstream() error {
	if o.sync < 0 || o.sync > 0 && o.sync < time.Second {
		return fmt.Errorf("--endpoints-auto-sync-interval %v: give a second or more, or 0 for never", o.sync)
	}
	if err := o.discover(); err != nil {
		return err
	}
	if o.endpoints == nil {
		if o.sync > 0 {
			return errors.New("--endpoints-auto-sync-interval: it is for an etcd elsewhere; name it with --endpoints")
		}
		if o.towards.TrustedCAFile != "" || o.towards.CertFile != "" || o.towards.KeyFile != "" ||
			o.towards.InsecureSkipVerify {
			return errors.New("--cacert, --cert, --key, --insecure-skip-tls-verify: they are for an etcd elsewhere; name it with --endpoints")
		}
		return nil
	}
	if o.dataDir != "" || o.embedded != "" {
		return errors.New("--data-dir, --embedded-client-address: they are for an etcd in this process; leave out --endpoints, or them")
	}
	scheme := ""
	for i, e := range o.endpoints {
		if !strings.Contains(e, "://") {
			if _, _, err := net.SplitHostPort(e); err != nil {
				return fmt.Errorf("--endpoints %q: give URLs, or HOST:PORT", e)
			}
			if o.towards.TrustedCAFile != "" || o.towards.CertFile != "" {
				e = "https://" + e // etcdctl adds this scheme, too
			} else {
				e = "http://" + e
			}
			o.endpoints[i] = e
		}
		u, err := clientURL(e)
		if err != nil {
			return fmt.Errorf("--endpoints: %w", err)
		}
		if scheme != "" && u.Scheme != scheme {
			return fmt.Errorf("--endpoints: %s and %s are mixed; all must have the same", scheme, u.Scheme)
		}
		scheme = u.Scheme
	}
	if plain := scheme == "http" || scheme == "unix"; plain && (o.towards.TrustedCAFile != "" || o.towards.CertFile != "") {
		return fmt.Errorf("--endpoints %s: certificates are given, but plain text is spoken there; write https", strings.Join(o.endpoints, ","))
	}
	if o.towards.InsecureSkipVerify && (scheme == "http" || scheme == "unix" || o.towards.TrustedCAFile != "") {
		return errors.New("--insecure-skip-tls-verify: it is for https without --cacert")
	}
	if (o.towards.CertFile == "") != (o.towards.KeyFile == "") {
		return errors.New("--cert and --key: give both, or neither")
	}
	if _, err := o.towards.ClientConfig(); err != nil {
		return fmt.Errorf("--cacert, --cert, --key: %w", err)
	}
	return nil
}

// checkVersions parses the TLS options for clients' connections.
func (o *options) checkVersions() error {
	var err error
	if o.clients.MinVersion, err = tlsutil.GetTLSVersion(o.tls.min); err != nil {
		return fmt.Errorf("--tls-min-version %s: give TLS1.2 or TLS1.3", o.tls.min)
	}
	if o.clients.MaxVersion, err = tlsutil.GetTLSVersion(o.tls.max); err != nil {
		return fmt.Errorf("--tls-max-version %s: give TLS1.2 or TLS1.3", o.tls.max)
	}
	if o.clients.MaxVersion != 0 && o.clients.MinVersion > o.clients.MaxVersion {
		return fmt.Errorf("--tls-min-version %s is above --tls-max-version %s", o.tls.min, o.tls.max)
	}
	if o.clients.CipherSuites, err = tlsutil.GetCipherSuites(o.tls.ciphers); err != nil {
		return fmt.Errorf("--listen-cipher-suites: %w", err)
	}
	if len(o.tls.ciphers) > 0 && o.clients.MinVersion == tls.VersionTLS13 {
		return errors.New("--listen-cipher-suites: those of TLS1.3 cannot be chosen; leave them out, or --tls-min-version TLS1.3")
	}
	return nil
}

// discover looks up etcd in DNS, if the options ask for it.
func (o *options) discover() error {
	if o.discovery.domain == "" {
		if o.discovery.name != "" || o.discovery.insecure {
			return errors.New("--discovery-srv-name, --insecure-discovery: give --discovery-srv, too, the domain that DNS is asked about")
		}
		return nil
	}
	if o.endpoints != nil {
		return errors.New("--discovery-srv and --endpoints: give one of them")
	}
	var err error
	if o.endpoints, err = gateway.Discover(o.discovery.domain, o.discovery.name, o.towards,
		o.discovery.insecure); err != nil {
		return fmt.Errorf("--discovery-srv %s: %w (--insecure-discovery takes any that DNS names)", o.discovery.domain, err)
	}
	return nil
}

// clientURL parses a client URL in etcd's form.
func clientURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL: %w", s, err)
	}
	switch u.Scheme {
	case "http", "https":
		if _, _, err := net.SplitHostPort(u.Host); err != nil || u.Path != "" {
			return nil, fmt.Errorf("%q: give %s://HOST:PORT", s, u.Scheme)
		}
	case "unix", "unixs":
		if u.Host+u.Path == "" {
			return nil, fmt.Errorf("%q: give %s://PATH", s, u.Scheme)
		}
	default:
		return nil, fmt.Errorf("%q: give a URL that begins with http://, https://, unix:// or unixs://", s)
	}
	return u, nil
}
