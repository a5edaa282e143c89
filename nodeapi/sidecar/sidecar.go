// Package sidecar implements the command netcraq-sidecar, which serves the node API to the programs
// of one pod or one machine. It is a package because other commands use it with additional kinds of
// sources for streams.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/buildmetric"
	"github.com/netcraq/netcraq/internal/helptext"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/notify"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/streams/broker"
)

// These are the exit codes of the command.
const (
	exitOK       = 0 // the command ended because of SIGTERM, SIGINT or a successor
	exitFailed   = 1 // an error occurred while the command ran
	exitBadInput = 2 // the command line or the policy is not valid
)

// policyEvery is the interval at which the command checks whether the policy has changed.
const policyEvery = 2 * time.Second

type options struct {
	name      string
	kinds     []Kind
	listen    []string
	mode      string
	group     string
	admin     string
	token     string
	namespace string
	node      string
	policy    string
	metrics   string
	offer     string
	takeOver  bool
	grace     time.Duration
	push      bool
	streams   string
	memory    int64
	logLevel  string
	etcd      durable.Access
}

// badInput marks an error in the command line or in the policy.
type badInput struct{ error }

func (b badInput) Unwrap() error { return b.error }

// Run runs the command until a signal ends it, and returns the exit code of the process. The
// argument `more` has kinds of sources in addition to those that every sidecar has.
func Run(name string, args []string, stdout, stderr io.Writer, more ...Kind) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := Execute(ctx, name, args, stdout, stderr, more...)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	if errors.As(err, new(badInput)) || strings.HasPrefix(err.Error(), "unknown command") {
		return exitBadInput
	}
	return exitFailed
}

// Execute runs the command until ctx ends. It is for processes that also do other things, so it
// prints no errors and handles no signals. It returns nil if it ended because of ctx or a
// successor.
func Execute(ctx context.Context, name string, args []string, stdout, stderr io.Writer, more ...Kind) error {
	o := options{name: name, kinds: append([]Kind{ofEtcd()}, more...)}
	cmd := &cobra.Command{
		Use:   name,
		Short: "Serve the node API to the programs of a pod or a machine",
		Long: `netcraq-sidecar serves the node API: keys by name, watches, leases, locks, elections and services,
over a Unix socket and lines of JSON (docs/node-api.md). It sends queries to the switches and asks
the controller (--admin) where keys are.

The socket's file permissions (--socket-mode, --socket-group) decide who can connect. --policy
decides what callers may do; without it they may do everything. Over TCP the server cannot identify
its callers. Use TCP only on a pod's loopback or in a closed network; it requires a policy.

The switches hold the keys for as long as one member of their chain runs. The keys of namespaces
that the policy declares durable live in etcd, behind etcd-monitor (--endpoints). Every write goes
to etcd, and reads of placed keys go to the switches. While etcd is unreachable, the server refuses
calls of these namespaces as unavailable; other calls continue.

Until a controller answers, calls for keys wait for up to 30 s. The server then refuses them as
unavailable. It serves streams at once.

Once it serves, it prints one line on stdout that begins with "ready:". On SIGINT or SIGTERM it
accepts no more connections and waits for its clients, for at most --grace. With --take-over it
takes the listening sockets of the netcraq-sidecar that has them. That one then drains, and no call
fails. Exit codes: 0 after such an end; 1 if it cannot start or run; 2 for a mistake on the command
line or in the policy.`,
		Example: `  netcraq-sidecar --admin unix:///run/netcraq/controller.sock --namespace shop
  netcraq-sidecar --listen unix:///run/shop/node.sock --socket-group shop
  netcraq-sidecar --policy policy.yaml --endpoints http://127.0.0.1:23790
  netcraq-sidecar --listen tcp://127.0.0.1:7400 --policy policy.yaml`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), o, stdout, stderr) },
	}
	host, _ := os.Hostname()
	f := cmd.Flags()
	f.StringSliceVar(&o.listen, "listen", []string{"unix://" + nodeapi.DefaultSocket},
		"`ADDRESSES` to serve: unix:///PATH, or tcp://HOST:PORT (no HOST: the loopback's)")
	f.StringVar(&o.mode, "socket-mode", "660", "permissions of the Unix sockets' files, octal")
	f.StringVar(&o.group, "socket-group", "", "`GROUP` of the Unix sockets' files, name or number (default: this process's)")
	f.StringVar(&o.admin, "admin", admin.DefaultSocket(),
		"address of the controller's admin API: unix:///PATH, or http://HOST:PORT with a token")
	f.StringVar(&o.token, "token-file", admin.DefaultToken(), "`FILE` with the token for --admin http://HOST:PORT")
	f.StringVar(&o.namespace, "namespace", "default", "namespace of callers that name none")
	f.StringVar(&o.node, "node", host, "name of this node; instances of services that register here count as near (default: the host's name)")
	f.Lookup("node").DefValue = "" // remove the host's name, so that the help text is the same on all hosts
	f.StringVar(&o.policy, "policy", "", "`FILE` (YAML or JSON) with permissions and quotas; the server rereads it after a change (default: callers may do everything)")
	o.flagsOfEtcd(f)
	f.StringVar(&o.metrics, "metrics", "", "`HOST:PORT` to serve /metrics at (default: nowhere)")
	f.StringVar(&o.offer, "successor-socket", "",
		"`PATH` of the socket that passes the listening sockets to a successor (default: the path of the first Unix socket with .successor appended)")
	f.BoolVar(&o.takeOver, "take-over", false, "take the listening sockets of the running netcraq-sidecar, if there is one")
	f.BoolVar(&o.push, "push", true, "let the switch report commits of watched keys, if the controller supports it (=false: poll watched keys)")
	f.StringVar(&o.streams, "streams", "", "`DIR` in memory (tmpfs) for streams that survive this process; only this user may have access (default: all streams are volatile)")
	f.Int64Var(&o.memory, "streams-memory", 256, "memory for streams, in `MIB` (0: no streams)")
	for _, k := range o.kinds {
		k.Flags(f)
	}
	f.DurationVar(&o.grace, "grace", 30*time.Second, "time that clients have to finish when the server stops")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	helptext.Fit(cmd)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput{err} })
	return cmd.ExecuteContext(ctx)
}

func serve(ctx context.Context, o options, stdout, stderr io.Writer) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return badInput{fmt.Errorf("--log-level %s: give debug, info, warn or error", o.logLevel)}
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	access, err := o.access()
	if err != nil {
		return badInput{err}
	}
	for _, address := range o.listen {
		if err := server.CheckAddress(address); err != nil {
			return badInput{err}
		}
	}
	config := server.Config{Name: o.name + " " + buildinfo.Version(), Node: o.node, Namespace: o.namespace, Log: log}
	quotas, policy, err := o.authority(&config)
	if err != nil {
		return badInput{err}
	}
	connection, err := o.dialEtcd()
	if err != nil {
		return badInput{err}
	}
	var endSources func()
	if config.Sources, endSources, err = openSources(ctx, o.kinds, log); err != nil {
		return badInput{err}
	}
	defer endSources()
	if config.Metrics, err = metrics(ctx, o, log); err != nil {
		return err
	}
	client := admin.NewClient(o.admin, admin.TokenFile(o.token))
	defer client.Close()
	storing := keys.Options{Admin: client, Node: o.node, Quota: quotas.Keys, Metrics: config.Metrics}
	if o.push {
		push := notify.New(notify.Options{Admin: client, Log: log, Metrics: config.Metrics})
		defer push.Close()
		storing.Push = push
	}
	st := keys.NewLate()
	filling, stop := context.WithCancel(ctx)
	var filled sync.WaitGroup
	filled.Go(func() { st.Fill(filling, storing, nil, log) })
	defer st.Close()
	defer filled.Wait()
	defer stop()
	config.Store = st
	changed := quotas.Changed
	if connection != nil {
		both, end := withDurable(ctx, st, connection, quotas, policy, config.Metrics)
		defer end()
		config.Store, config.Durable = both, both.Durable
		changed = func() { quotas.Changed(); both.Changed() }
	}
	if policy != nil {
		go policy.Follow(ctx, policyEvery, log, changed)
	}

	if o.memory > 0 {
		all := o.memory << 20
		config.Streams = &broker.Options{Dir: o.streams, Limits: broker.Limits{Bytes: all, AllBytes: all}}
	}
	if o.takeOver && alive(o.successorSocket()) {
		// Wait for a controller, because the predecessor can serve the keys that it knows, and this
		// process knows no keys.
		select {
		case <-st.Filled():
		case <-ctx.Done():
			return nil
		}
	}
	s := server.New(config)
	defer s.Close()
	listeners, taken, err := o.listeners(access, log)
	if err != nil {
		return err
	}
	ended := make(chan error, len(listeners)+1)
	for _, l := range listeners {
		go func() { ended <- s.Serve(l) }()
	}
	if err := taken(); err != nil {
		return fmt.Errorf("the predecessor does not hear that its sockets are taken: %w", err)
	}
	if path := o.successorSocket(); path != "" {
		go func() { ended <- s.Offer(path) }()
	}
	fmt.Fprintf(stdout, "ready: the node API at %s\n", strings.Join(o.listen, ", "))
	select {
	case <-ctx.Done():
		log.Info("draining", "for at most", o.grace)
	case err := <-ended:
		// ErrClosed from Serve means that a successor accepts the connections; Offer will return
		// soon for the same reason
		if err != nil && !errors.Is(err, server.ErrClosed) {
			return err
		}
		log.Info("a successor serves; draining", "for at most", o.grace)
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.grace)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		log.Warn("clients were cut off", "error", err)
	}
	return nil
}

// authority configures who may do what. The policy decides or, if there is no policy, the
// permissions of the sockets' files. In the second case every caller that can connect may do
// everything.
func (o *options) authority(c *server.Config) (*authority.Quotas, *authority.PolicyFile, error) {
	c.Authority = authority.Files{Own: o.namespace}
	if o.policy == "" {
		for _, address := range o.listen {
			if strings.HasPrefix(address, "tcp://") {
				return nil, nil, fmt.Errorf("--listen %s: callers over TCP cannot be identified, so pass a --policy that says what they may do (tcp: true)", address)
			}
		}
		quotas := authority.NewQuotas(func(string) authority.Quota { return authority.DefaultQuota }, nil)
		c.Quotas = quotas
		return quotas, nil, nil
	}
	policy, err := authority.OpenPolicy(o.policy, authority.System{}, o.checkDurable)
	if err != nil {
		return nil, nil, err
	}
	policy.Own = o.namespace
	c.Authority = policy
	c.Quotas = authority.NewQuotas(policy.Quota, nil)
	return c.Quotas, policy, nil
}

// access parses the flags for the permissions of the sockets' files.
func (o *options) access() (server.Access, error) {
	a := server.Access{GID: -1}
	mode, err := strconv.ParseUint(o.mode, 8, 32)
	if err != nil || mode > 0o777 {
		return a, fmt.Errorf("--socket-mode %s: want octal permissions, as 660", o.mode)
	}
	a.Mode = fs.FileMode(mode)
	if o.group == "" {
		return a, nil
	}
	number := o.group
	if g, err := user.LookupGroup(o.group); err == nil {
		number = g.Gid
	}
	if a.GID, err = strconv.Atoi(number); err != nil || a.GID < 0 {
		return a, fmt.Errorf("--socket-group %s: there is no such group", o.group)
	}
	return a, nil
}

// alive reports whether a process listens at a Unix socket. It connects with the wrong socket type.
// The kernel itself refuses this, with a different error if no process listens, so the listening
// process does not notice.
func alive(path string) bool {
	_, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	return errors.Is(err, syscall.EPROTOTYPE)
}

// listeners opens the listening addresses, or takes them over from a predecessor. The caller must
// call taken when it serves them.
func (o *options) listeners(a server.Access, log *slog.Logger) (_ []net.Listener, taken func() error, err error) {
	taken = func() error { return nil }
	have := map[string]net.Listener{}
	if o.takeOver {
		switch t, err := server.TakeOver(o.successorSocket()); {
		case err == nil:
			have, taken = t.Listeners, t.Taken
			log.Info("listening sockets are taken over", "count", len(have))
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
			log.Info("there is nobody to take listening sockets over from")
		default:
			return nil, nil, fmt.Errorf("taking over: %w", err)
		}
	}
	var out []net.Listener
	for _, address := range o.listen {
		l := have[address]
		delete(have, address)
		if l == nil {
			if l, err = server.Listen(address, a); err != nil {
				return nil, nil, err
			}
		}
		out = append(out, l)
	}
	for address, l := range have {
		log.Info("a socket that was handed on is not served any more", "address", address)
		l.Close()
	}
	return out, taken, nil
}

func (o *options) successorSocket() string {
	if o.offer != "" {
		return o.offer
	}
	for _, address := range o.listen {
		if path, ok := strings.CutPrefix(address, "unix://"); ok {
			return path + ".successor"
		}
	}
	return ""
}

// metrics serves the metrics over HTTP. It returns nil if metrics are disabled. At the beginning, a
// predecessor may still serve its own metrics at the same address.
func metrics(ctx context.Context, o options, log *slog.Logger) (prometheus.Registerer, error) {
	if o.metrics == "" {
		return nil, nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(buildmetric.New("netcraq-sidecar"), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	l, err := net.Listen("tcp", o.metrics)
	if err != nil && (!o.takeOver || !errors.Is(err, syscall.EADDRINUSE)) {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { s.Close() })
	go func() {
		for l == nil {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return
			}
			if l, err = net.Listen("tcp", o.metrics); err != nil {
				l = nil
			}
		}
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	return registry, nil
}
