package main

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/internal/buildmetric"
)

const (
	startTime = time.Minute     // timeout for the embedded etcd's start; a long log takes some seconds
	graceTime = 5 * time.Second // time that requests in progress get to finish when the gateway ends
	gcPercent = 400             // amount of garbage, in percent of live memory, that triggers a collection
)

// serve runs the gateway until ctx ends.
func serve(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	level, listen, err := o.check()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	signals := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	// fails runs what in the background. If what fails, the gateway ends.
	fails := func(what func() error) {
		running.Go(func() {
			if err := what(); err != nil {
				cancel(err)
			}
		})
	}

	if os.Getenv("GOGC") == "" && o.endpoints != nil {
		// A gateway has little live memory. With the default setting it would collect garbage all
		// the time, which costs a sixth of a read. With an etcd in this process there is much live
		// memory.
		debug.SetGCPercent(gcPercent)
	}
	where := "etcd at " + strings.Join(o.endpoints, ",")
	if o.endpoints == nil {
		e, err := o.startEmbedded(ctx)
		if err != nil {
			return err
		}
		defer e.Close()
		fails(func() error {
			select {
			case err := <-e.Err():
				return fmt.Errorf("the embedded etcd ended: %w", err)
			case <-ctx.Done():
				return nil
			}
		})
		o.endpoints, o.ownEtcd = []string{e.Endpoint()}, true
		where = fmt.Sprintf("its own etcd at %s in %s", e.Endpoint(), o.dataDir)
	}
	if o.towards.InsecureSkipVerify {
		log.Warn("any certificate is taken for etcd's: whoever is on the way there can read and change everything")
	}
	upstream, err := gateway.Dial(gateway.UpstreamConfig{Endpoints: o.endpoints, SyncInterval: o.sync, TLS: o.towards,
		InTurn: !o.toLeader, ReadsInTurn: !o.readsToLeader, User: o.user, Password: o.secret, Log: log})
	if err != nil {
		return err
	}
	defer upstream.Close()
	newest := new(gateway.Newest)
	metrics := hotkeys.NewMetrics(hotkeys.Bounds{Top: o.topKeys}, newest.Revision)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(
		collectors.ProcessCollectorOpts{}), buildmetric.New("etcd-monitor"))

	var keys pb.KVServer
	var own reserved.Keys
	var asSelf *clientv3.Client
	var enabling func(context.Context, func() error) error
	if o.controller != "" {
		n, err := o.openNetwork(ctx, upstream, newest, metrics, log, stderr)
		if err != nil {
			return err
		}
		defer n.Close()
		own, asSelf, enabling = o.reserved(), n.etcd, n.Enabling
		keys, where = n.Server, where+", and placed keys as the controller at "+o.controller+" says"
	}
	g, err := gateway.New(gateway.Config{Upstream: upstream, KV: keys, Newest: newest, Metrics: metrics,
		Log: log, Registry: registry,
		Reserved: own, AsSelf: asSelf, AuthEnable: enabling, Namespace: o.namespace, CORS: o.cors,
		Hosts: o.hosts, Profiles: o.profiles, Relay: o.relay,
		AdvertiseClientURLs: o.advertise, MaxRequestBytes: o.maxRequestBytes,
		MaxConcurrentStreams: o.maxStreams, KeepAliveMinTime: o.keepAliveMin, KeepAliveInterval: o.keepAlive,
		KeepAliveTimeout: o.keepAliveT})
	if err != nil {
		return err
	}
	defer func() {
		grace, end := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
		defer end()
		g.Shutdown(grace)
	}()
	running.Go(g.Reach)
	var urls []string
	for _, u := range listen {
		l, err := gateway.Listen(u, o.clients)
		if err != nil {
			return fmt.Errorf("%w (does another process listen there? --listen-client-urls chooses other addresses)", err)
		}
		if t, ok := l.Addr().(*net.TCPAddr); ok {
			if u.Host = t.String(); u.Scheme == "http" && !t.IP.IsLoopback() {
				log.Warn("clients talk to this address in plain text, and need no certificate", "url", u.String())
			}
		}
		urls = append(urls, u.String())
		fails(func() error { return g.Serve(l) })
	}
	line := fmt.Sprintf("ready: etcd's API at %s, for %s", strings.Join(urls, ","), where)
	if err := upstream.Answers(ctx); err != nil && ctx.Err() == nil {
		line += fmt.Sprintf(" (it does not answer yet, and requests wait until it does: %v)", err)
	}
	if o.metrics != "" {
		l, err := net.Listen("tcp", o.metrics)
		if err != nil {
			return fmt.Errorf("listening for those who read metrics: %w (does another process listen there? --metrics-addr chooses another address)", err)
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		mux.Handle("GET /debug/vars", expvar.Handler())
		server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		context.AfterFunc(ctx, func() { server.Close() })
		fails(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving metrics: %w", err)
			}
			return nil
		})
		line += fmt.Sprintf("; metrics at http://%s/metrics", l.Addr())
	}
	fmt.Fprintln(stdout, line)
	<-ctx.Done()
	if signals.Err() == nil {
		return context.Cause(ctx)
	}
	return nil
}

// ownEtcd is an etcd in this process.
type ownEtcd interface {
	Endpoint() string  // URL for clients of the etcd
	Err() <-chan error // receives the error with which etcd has ended
	Close()
}
