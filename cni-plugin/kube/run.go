package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apps "k8s.io/api/apps/v1"
	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/cniconf"
	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/guards"
	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/masquerade"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/internal/persource"
)

// Options are what an agent needs to know.
type Options struct {
	Config    *rest.Config // of the API server
	Node      string       // this node's name
	Component string       // of the agents, which this one's DaemonSet has as a label; "": any
	Namespace string       // of the agents: of the authority's Secret, and of the leader's Lease

	Socket    string // for the CNI plugin
	StateDir  string // for records of attachments
	Engine    string // of the switch: auto, ebpf or interp
	MTU       int    // of pods, in bytes; 0: what the node's interface leaves
	Routes    podroutes.Mode
	P4Runtime string // a loopback address where the switch's P4Runtime is served in plain text; "": nowhere

	Masquerade bool // pods reach what is outside of the cluster under the node's address
	// Chained: another plugin is the pods' network. The agent puts the switch's ports at its
	// interfaces, and makes no routes to pods, addresses or masquerading.
	Chained bool
	// AfterOthers: the switch's program comes after others' at an interface, not before them.
	AfterOthers bool

	P4RuntimePort int // of the node's address, with TLS
	AgentPort     int // ... for the leader to learn of the node's pods
	HealthPort    int // ... for /healthz, /readyz and /metrics, without

	// Fabric is where the switches are that are not on the nodes; nil: each node runs its own.
	Fabric *fabric.Fabric

	// Services has the chains' service addresses: that of a chain is the first, and as many on as
	// the chain's id says. Switches has the switches' own, by the nodes' numbers.
	Services, Switches netip.Prefix

	CNI     CNI
	NodeAPI NodeAPI
	Lead    *Lead // nil: this agent may not lead
	Log     *slog.Logger
}

// CNI says where a container runtime looks for its network.
type CNI struct {
	ConfDir string // "": the runtime's configuration is not this agent's business
	BinDir  string
	From    string // the folder with the plugins to install; "": none are
	Version string // of the specification
}

// Scheme has the kinds of object that are read and written here.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(apps.AddToScheme(s), authorization.AddToScheme(s), corev1.AddToScheme(s),
		certificates.AddToScheme(s), networking.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("the kinds of objects: %w", err)
	}
	return s, nil
}

// startWait is the time between two looks at a node that cannot be worked with yet.
const startWait = time.Second

// connectionsOfOne is how many connections one address may have open at a listener of the agent. A
// leader or another agent needs a few.
const connectionsOfOne = 64

// Run is the life of an agent. It returns when ctx ends and its node's switch may go (lastMember),
// or with an error when it has to be started again.
func Run(told context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(told))
	defer cancel(nil)
	// what is done before anything ends, in this order; nil: nothing has begun
	var leave, release atomic.Pointer[func()]
	stop := context.AfterFunc(told, func() {
		for _, before := range []*atomic.Pointer[func()]{&leave, &release} {
			if f := before.Load(); f != nil {
				(*f)()
			}
		}
		cancel(context.Cause(told))
	})
	defer stop()
	libraries := slog.New(onlyTrouble{o.Log.Handler()})
	ctrl.SetLogger(logr.FromSlogHandler(libraries.Handler()))
	klog.SetSlogLogger(libraries)
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	health := newHealth()
	mgr, self, err := o.waitForCluster(ctx, scheme)
	if err != nil {
		return err
	}
	ranges, err := serviceRanges(ctx, mgr.GetAPIReader())
	if err != nil {
		o.Log.Warn("--services and --switches are not compared with all of the Services' addresses", "err", err)
	}
	if err := o.checkPrefixes(self, ranges); err != nil {
		// A node whose pods depend on this agent goes on, because a cluster can get other ranges,
		// and can tell more of them, after an upgrade.
		if !agent.Attached(o.StateDir) {
			return err
		}
		o.Log.Error("pods may not reach all of the cluster", "err", err)
	}
	// Certificates come when they come: pods do not wait for them.
	id := identity.New(o.Node)
	certs := &keeper{identity: id, roles: []identity.Role{identity.Switch}, node: o.Node,
		read: mgr.GetAPIReader(), write: mgr.GetClient(), namespace: o.Namespace, log: o.Log}
	if o.Lead != nil {
		certs.roles = append(certs.roles, identity.Controller)
		a := &authorities{read: mgr.GetAPIReader(), write: mgr.GetClient(), namespace: o.Namespace,
			now: time.Now, log: o.Log}
		s := &signer{client: mgr.GetClient(), authorities: a, namespace: o.Namespace, log: o.Log}
		if err := errors.Join(mgr.Add(a), s.setup(mgr)); err != nil {
			return fmt.Errorf("signing the agents' certificates: %w", err)
		}
	}
	health.own.MustRegister(certs.metrics()...)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer cancel(nil)
	keeping.Go(func() { certs.run(ctx) })
	if o.MTU == 0 && !o.Chained {
		if o.MTU, err = podroutes.MTU(self, o.Routes); err != nil {
			return err
		}
	}

	listener, err := agent.Listen(o.Socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	at := func(port int) string { return net.JoinHostPort(self.Address.String(), strconv.Itoa(port)) }
	var removing atomic.Bool // the agent goes for good, from a node that is another plugin's
	defer func() {
		if removing.Load() {
			if err := releaseNode(); err != nil {
				o.Log.Error("not all that is NetCRAQ's was removed: netcraq-agent cleanup does it", "err", err)
			}
		}
	}()
	report := health.restored(guards.Saying(o.Log))
	attached, err := o.attach(self, at(o.P4RuntimePort), id.Server(), report)
	if err != nil {
		return err
	}
	defer attached.close()
	a, err := agent.New(agent.Options{Dir: o.StateDir, Switch: attached.sw, FirstPort: firstPodPort,
		LastPort: lastPodPort, AfterOthers: o.AfterOthers, Services: []netip.Prefix{o.Services}, MTU: o.MTU,
		Log: o.Log, Reserved: o.reserved()})
	if err != nil {
		return err
	}
	health.watch(a)
	serve := func(what string, l net.Listener, h http.Handler) {
		server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
			BaseContext: func(net.Listener) context.Context {
				return ctx
			}}
		context.AfterFunc(ctx, func() { server.Close() })
		go func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("serving %s: %w", what, err))
			}
		}()
	}
	serve("the CNI plugin", listener, a.Handler())
	if !o.Chained {
		err = agent.EnableForwarding()
	}
	m := &member{lost: newWaker()}
	err = errors.Join(err, attached.connectHost(), podroutes.Watch(ctx, o.Log, m.lost.wake),
		ingressfilter.KeepRules(ctx, func(name string, err error) {
			report(guards.Table, name, err)
			m.lost.wake() // masquerading may have gone with the same command
		}))
	if err != nil {
		return err
	}
	if err := a.Reconcile(); err != nil {
		o.Log.Error("pods whose interfaces are no ports keep their connectivity, but for NetCRAQ", "err", err)
	}
	if err := guards.Watch(ctx, o.Log, func() {
		if !o.Chained {
			agent.RestoreForwarding(report)
		}
		a.Restore(report)
		attached.restore(report)
	}); err != nil {
		return err
	}
	leaders, err := net.Listen("tcp", at(o.AgentPort))
	if err != nil {
		return fmt.Errorf("serving the leader: %w", err)
	}
	secure := tls.NewListener(persource.Listen(leaders, connectionsOfOne), id.Server())
	others := http.NewServeMux()
	others.Handle("GET "+podsPath, servePods(a))
	keysOf := defaultKeys
	if o.NodeAPI.Socket != "" {
		n, err := serveNodeAPI(ctx, o, mgr.GetClient(), mgr.GetCache(), health.own, cancel)
		if err != nil {
			return err
		}
		defer n.end()
		keysOf = n.quotas.Keys
		others.Handle("GET "+linkPath, n.link)
		last := lastMember{self: o.Node, chains: api.NewClient("127.0.0.1", api.Through(n.link)).Chains,
			most: lastMemberMost, silence: lastMemberSilence, log: o.Log}
		first := func() {
			if o.Fabric == nil { // else the chain's switches are elsewhere
				last.wait()
			}
			n.drain(o.Log)
		}
		leave.Store(&first)
	}
	serve("the leader", secure, others)
	plain, err := net.Listen("tcp", at(o.HealthPort))
	if err != nil {
		return fmt.Errorf("serving health and metrics: %w", err)
	}
	serve("health and metrics", persource.Listen(plain, connectionsOfOne), health)

	claims := &claims{addressing: addressing{o.Services, o.Switches}, chained: o.Chained}
	m.client, m.self, m.claims, m.log = mgr.GetClient(), self, claims, o.Log
	m.restart = func(err error) { cancel(err) }
	m.connect, m.connectNumbered, m.route = attached.connectPeers, attached.connectNumbered, o.route
	m.status = v1alpha1.NetcraqNodeStatus{P4Runtime: at(o.P4RuntimePort), Agent: at(o.AgentPort),
		Engine: attached.engine}
	m.silent = o.Fabric != nil
	if err := m.setup(mgr); err != nil {
		return err
	}
	if o.Lead != nil {
		p, err := newOperator(o, mgr, id.Client(), self, health, claims)
		if err != nil {
			return err
		}
		p.nodes.quota = keysOf // before it leads
		if err := p.serveAdmin(ctx, cancel); err != nil {
			return err
		}
		others.Handle(adminPath, http.StripPrefix(strings.TrimSuffix(adminPath, "/"), byAgents(&p.replica)))
	}
	if o.Chained {
		var unchain func(*agent.Agent) error
		unchain, err = o.CNI.keepChained(ctx, o.Socket, o.Log, cancel)
		f := func() { removing.Store(o.releaseIfRemoved(mgr.GetAPIReader(), a, unchain)) }
		release.Store(&f)
	} else {
		err = o.CNI.install(ctx, self, o.Socket, o.Log, cancel)
	}
	if err != nil {
		return err
	}
	if o.Chained {
		a.SetReady(true, "")
	} else {
		go readyWithPolicies(ctx, mgr.GetAPIReader(), o.Namespace, a, ingressfilter.TablePresent, o.Log)
	}
	o.Log.Info("ready", "node", self.Name, "address", self.Address, "pods", self.PodCIDRs, "engine",
		attached.engine, "attachments", len(a.Attachments()), "mtu", o.MTU, "may lead", o.Lead != nil)
	go func() {
		select {
		case <-ctx.Done():
		case err := <-attached.failed:
			cancel(fmt.Errorf("serving P4Runtime: %w", err))
		}
	}()
	err = mgr.Start(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	return err
}

// cache is what is kept of the API server's objects. An agent that may not lead has to do with its
// own node's pods alone.
func (o *Options) cache() cache.Options {
	out := cache.Options{DefaultTransform: withoutBallast}
	if o.Lead == nil {
		out.ByObject = map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Field: fields.OneTermEqualSelector("spec.nodeName", o.Node)}}
	}
	return out
}

// onlyTrouble leaves out what Kubernetes' libraries say when all is well, which is much.
type onlyTrouble struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h onlyTrouble) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (h onlyTrouble) WithAttrs(a []slog.Attr) slog.Handler {
	return onlyTrouble{h.Handler.WithAttrs(a)}
}

// WithGroup implements slog.Handler.
func (h onlyTrouble) WithGroup(name string) slog.Handler {
	return onlyTrouble{h.Handler.WithGroup(name)}
}

// waitForCluster waits until the API server answers, and knows enough of this node. Meanwhile the
// kubelet is told that the agent is alive: when it starts an agent again it waits longer each time.
func (o *Options) waitForCluster(
	ctx context.Context, scheme *runtime.Scheme,
) (mgr ctrl.Manager, self podroutes.Node, err error) {
	if _, err := rest.HTTPClientFor(o.Config); err != nil { // no waiting mends that
		return nil, self, fmt.Errorf("the API server: %w", err)
	}
	if end, err := serveWaiting(o.HealthPort); err == nil {
		defer end()
	} else {
		o.Log.Warn("a kubelet may end this agent while it waits for the API server", "err", err)
	}
	err = o.waitFor(ctx, "the API server "+o.Config.Host, func() (err error) {
		mgr, err = ctrl.NewManager(o.Config, manager.Options{Scheme: scheme,
			Metrics: metricsserver.Options{BindAddress: "0"},
			Cache:   o.cache(),
			Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{},
				&corev1.ConfigMap{}}}}})
		return err
	})
	if err == nil {
		err = o.waitFor(ctx, "this node, "+o.Node, func() (err error) {
			self, err = ownNode(ctx, mgr.GetAPIReader(), o.Node, o.Chained)
			return err
		})
	}
	return mgr, self, err
}

// waitFor calls get until it succeeds or ctx ends, and logs each new reason for waiting.
func (o *Options) waitFor(ctx context.Context, what string, get func() error) error {
	for said := ""; ; {
		err := get()
		if err == nil {
			return nil
		}
		if text := err.Error(); text != said {
			o.Log.Warn("waiting for "+what, "err", err)
			said = text
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(startWait):
		}
	}
}

// ownNode is what the API server knows of this node. It has to have an address, and a prefix for
// pods, which the controller manager gives it (--allocate-node-cidrs). Where another plugin is the
// pods' network the prefix is not needed.
func ownNode(ctx context.Context, r client.Reader, name string, chained bool) (podroutes.Node, error) {
	var n corev1.Node
	if err := r.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
		return podroutes.Node{}, err
	}
	out := fromNode(&n).Node
	if chained && out.Address.Is4() {
		return out, nil
	}
	return out, out.Check()
}

// route makes what the node needs for the others: ways to their pods, and who may send in tunnels.
func (o *Options) route(self podroutes.Node, others []podroutes.Node) error {
	if o.Chained {
		return errors.Join(podroutes.ApplyTunnels(self, others), masquerade.Remove())
	}
	return errors.Join(podroutes.Apply(self, others, o.Routes), masquerade.KeepRules(o.Masquerade, self, others))
}

// plugins are those that the agent installs.
func (c CNI) plugins(chained bool) cniconf.Plugins {
	return cniconf.Plugins{From: c.From, To: c.BinDir, Own: "netcraq-cni", OnlyOwn: chained}
}

// install makes the node's container runtime use the plugin, and sees to it that the runtime goes
// on until ctx ends. fail ends the agent.
func (c CNI) install(
	ctx context.Context, self podroutes.Node, socket string, log *slog.Logger, fail func(error),
) error {
	plugins := c.plugins(false)
	if _, err := plugins.Install(); err != nil {
		return err
	}
	config := cniconf.Config{Version: c.Version, Subnets: self.PodCIDRs, Socket: socket}
	if c.ConfDir != "" {
		if err := cniconf.UnchainOthers(c.ConfDir); err != nil { // of an agent that was behind another plugin
			return err
		}
		changed, err := config.Write(c.ConfDir)
		if err != nil {
			return err
		}
		if changed {
			log.Info("the container runtime's network is this one", "file", c.ConfDir+"/"+cniconf.File)
		}
	}
	go func() {
		if err := config.Keep(ctx, c.ConfDir, plugins, log); errors.Is(err, cniconf.ErrFolderGone) {
			fail(err)
		} else if err != nil {
			log.Error("the container runtime's list of plugins is not kept", "err", err)
		}
	}()
	return nil
}

// withoutBallast drops what nobody here reads of cached objects, such as a node's list of images.
func withoutBallast(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.Status.Images, n.Status.VolumesInUse, n.Status.VolumesAttached = nil, nil, nil
	}
	if p, ok := o.(*corev1.Pod); ok {
		return onlyFastPath(p), nil
	}
	if m, ok := o.(client.Object); ok {
		m.SetManagedFields(nil)
	}
	return o, nil
}
