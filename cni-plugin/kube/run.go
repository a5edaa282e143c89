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
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/guards"
	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/kube/adminrights"
	"github.com/netcraq/netcraq/cni-plugin/kube/agentcerts"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/leaderlink"
	"github.com/netcraq/netcraq/cni-plugin/kube/netplan"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/kube/podapi"
	"github.com/netcraq/netcraq/cni-plugin/kube/reconcilers"
	"github.com/netcraq/netcraq/cni-plugin/masquerade"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/internal/persource"
)

// Run runs an agent. It returns after told has ended and its node's switch may end (see
// lastMember). It returns an error if the agent must be restarted.
func Run(told context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(told))
	defer cancel(nil)
	// leave and release are called in this order, before anything else ends. They are nil while
	// they are not needed.
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
	scheme, err := apiobjects.Scheme()
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
		// If pods depend on this agent, it continues despite an overlap. An upgrade of the cluster
		// can change its ranges, or make the API server report more of them.
		if !agent.Attached(o.StateDir) {
			return err
		}
		o.Log.Error("pods may not reach all of the cluster", "err", err)
	}
	// Pods do not have to wait for certificates.
	id := identity.New(o.Node)
	roles := []identity.Role{identity.Switch}
	if o.Lead != nil {
		roles = append(roles, identity.Controller)
		if err := agentcerts.SetupSigner(mgr, o.Namespace, o.Log); err != nil {
			return err
		}
	}
	certs := agentcerts.NewKeeper(id, o.Node, o.Namespace, roles, mgr.GetAPIReader(), mgr.GetClient(), o.Log)
	health.own.MustRegister(certs.Metrics()...)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer cancel(nil)
	keeping.Go(func() { certs.Run(ctx) })
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
	var removing atomic.Bool // a chained agent is being uninstalled
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
	a, err := agent.New(agent.Options{Dir: o.StateDir, Switch: attached.sw, FirstPort: netplan.FirstPodPort,
		LastPort: netplan.LastPodPort, AfterOthers: o.AfterOthers, Services: []netip.Prefix{o.Services}, MTU: o.MTU,
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
	m := &member{lost: apiobjects.NewWaker()}
	err = errors.Join(err, attached.connectHost(), podroutes.Watch(ctx, o.Log, m.lost.Wake),
		ingressfilter.KeepRules(ctx, func(name string, err error) {
			report(guards.Table, name, err)
			m.lost.Wake() // the same command may have removed the masquerading
		}))
	if err != nil {
		return err
	}
	if err := a.Reconcile(); err != nil {
		o.Log.Error("pods whose interfaces are not attached to the switch keep their connectivity, but cannot use NetCRAQ", "err", err)
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
	others.Handle("GET "+leaderlink.PodsPath, leaderlink.ServePods(a))
	keysOf := adminrights.DefaultKeys
	if o.NodeAPI.Socket != "" {
		n, err := podapi.Serve(ctx, o.NodeAPI, o.Node, mgr.GetClient(), mgr.GetCache(), o.Log, health.own, cancel)
		if err != nil {
			return err
		}
		defer n.Close()
		keysOf = n.Quotas.Keys
		others.Handle("GET "+leaderlink.Path, n.Link)
		last := lastMember{self: o.Node, chains: admin.NewClient("127.0.0.1", admin.Through(n.Link)).Chains,
			most: lastMemberMost, silence: lastMemberSilence, log: o.Log}
		first := func() {
			if o.Fabric == nil { // with a fabric, the chains' switches are not on the nodes
				last.wait()
			}
			n.Drain(o.Log)
		}
		leave.Store(&first)
	}
	serve("the leader", secure, others)
	plain, err := net.Listen("tcp", at(o.HealthPort))
	if err != nil {
		return fmt.Errorf("serving health and metrics: %w", err)
	}
	serve("health and metrics", persource.Listen(plain, connectionsOfOne), health)

	addresses := nodeview.Addressing{Services: o.Services, Switches: o.Switches}
	m.client, m.self, m.claims, m.log = mgr.GetClient(), self, nodeclaims.New(addresses, o.Chained), o.Log
	m.restart = func(err error) { cancel(err) }
	m.connect, m.connectNumbered, m.route = attached.connectPeers, attached.connectNumbered, o.route
	m.status = v1alpha1.NetcraqNodeStatus{P4Runtime: at(o.P4RuntimePort), Agent: at(o.AgentPort),
		Engine: attached.engine}
	m.silent = o.Fabric != nil
	if err := m.setup(mgr); err != nil {
		return err
	}
	if o.Lead != nil {
		p, err := reconcilers.New(reconcilers.Options{Lead: *o.Lead, Config: o.Config, Self: self,
			Namespace: o.Namespace,
			// In a container, the agent may have no other writable folder.
			Dir:           filepath.Join(filepath.Dir(o.Socket), "program"),
			P4RuntimePort: o.P4RuntimePort, AgentPort: o.AgentPort, HealthPort: o.HealthPort, Fabric: o.Fabric,
			Addresses: addresses, Chained: o.Chained, TLS: id.Client(), Claims: m.claims, Quota: keysOf, Log: o.Log,
			Metrics: health.own, Leads: health.lead, Mux: health.mux}, mgr)
		if err != nil {
			return err
		}
		if err := p.ServeAdmin(ctx, cancel); err != nil {
			return err
		}
		others.Handle(adminrights.Path, http.StripPrefix(strings.TrimSuffix(adminrights.Path, "/"), p.ForAgents()))
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

// onlyTrouble is a log handler that drops the routine messages of Kubernetes' libraries, because
// there are many of them.
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

// route makes the node's routes to the pods of other nodes. It also sets which nodes may send in
// tunnels.
func (o *Options) route(self podroutes.Node, others []podroutes.Node) error {
	if o.Chained {
		return errors.Join(podroutes.ApplyTunnels(self, others), masquerade.Remove())
	}
	return errors.Join(podroutes.Apply(self, others, o.Routes), masquerade.KeepRules(o.Masquerade, self, others))
}
