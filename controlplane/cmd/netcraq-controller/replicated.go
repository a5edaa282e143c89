package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/controlplane/admin"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
)

// etcdOptions say where etcd is. Without endpoints the controller is alone.
type etcdOptions struct {
	endpoints     []string
	prefix        string
	ca, cert, key string
}

func (o *etcdOptions) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.endpoints, "etcd", nil, "etcd's client addresses (HOST:PORT,...): keep the state there, and share the\nwork with the other controllers that do")
	f.StringVar(&o.prefix, "etcd-prefix", "/netcraq/", "what the names of all keys in etcd begin with: one for each network")
	f.StringVar(&o.ca, "etcd-cacert", "", "certificates that etcd's must be signed by (PEM); makes the connection TLS")
	f.StringVar(&o.cert, "etcd-cert", "", "this controller's certificate for etcd (PEM)")
	f.StringVar(&o.key, "etcd-key", "", "... and its key")
}

func (o *etcdOptions) connect(ctx context.Context) (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: o.endpoints, DialTimeout: 5 * time.Second, Context: ctx, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second}
	if o.ca != "" || o.cert != "" {
		tls, err := transport.TLSInfo{TrustedCAFile: o.ca, CertFile: o.cert, KeyFile: o.key}.ClientConfig()
		if err != nil {
			return nil, badInput{fmt.Errorf("etcd's certificates: %w", err)}
		}
		cfg.TLS = tls
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, badInput{fmt.Errorf("--etcd %s: %w", strings.Join(o.endpoints, ","), err)}
	}
	return c, nil
}

// serveReplicated stands for leader, leads, and stands again, until ctx ends.
func serveReplicated(ctx context.Context, o options, n *network, log *slog.Logger, stdout io.Writer) error {
	// It is to fail here, and not when it is elected, if it could not lead.
	if _, err := controller.New(controller.Options{Topology: n.topology(), Store: controller.Memory{}, Log: log}); err != nil {
		return badInput{err}
	}
	client, err := o.etcd.connect(context.WithoutCancel(ctx)) // it is to resign yet when ctx ends
	if err != nil {
		return err
	}
	defer client.Close()
	door, err := admin.Listen(o.admin, log)
	if err != nil {
		return err
	}
	defer door.Close()
	id := etcdstore.Identity{Name: name(), Admin: reachable(door.TCP())}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.follow(ctx)
	var replica admin.Replica
	replica.Token, replica.ReadToken = door.Tokens()
	mux := http.NewServeMux()
	mux.Handle("GET "+etcdstore.AlivePath, etcdstore.Alive(id))
	mux.Handle("/", &replica)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel(nil)
	serving.Go(func() {
		if err := door.Serve(ctx, mux); err != nil {
			cancel(err)
		}
	})
	address := strings.Join(door.Addresses(), " and ")
	candidate := &etcdstore.Candidate{Client: client, Prefix: strings.TrimSuffix(o.etcd.prefix, "/") + "/", Identity: id, Log: log}
	fmt.Fprintf(stdout, "standing by: %s; admin API at %s\n", id.Name, address)
	for ctx.Err() == nil {
		term, err := candidate.Campaign(ctx, func(leader etcdstore.Identity) {
			log.Info("another controller leads", "leader", leader.Name, "admin", leader.Admin)
			replica.StandBy(leader.Admin)
		})
		if err == nil {
			err = lead(ctx, term, o, n, log, &replica, client, address, stdout)
			replica.StandBy("")
			term.Resign()
		}
		if ctx.Err() == nil {
			log.Warn("not leading", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	fmt.Fprintln(stdout, "stopped: another controller takes over, if one stands by")
	return nil
}

// lead runs a controller for a term, and says why that has ended.
func lead(ctx context.Context, term *etcdstore.Term, o options, n *network, log *slog.Logger, replica *admin.Replica, client *clientv3.Client, address string, stdout io.Writer) error {
	c, err := controller.New(controller.Options{Topology: n.topology(), Store: term, ElectionID: term.ElectionID(), Led: term.Led, Leading: etcdstore.Leading, Log: log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-term.Over():
			cancel(term.Err())
		case <-c.Deposed():
			cancel(errors.New("another controller has taken over at a switch"))
		}
	}()
	var placement admin.Placement
	if o.place.prometheus != "" {
		p, err := o.place.placer(c, client, log, term.Leads())
		if err != nil {
			return err
		}
		if err := c.Registry().Register(p.Metrics()); err != nil {
			return err
		}
		placement = p
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		defer func() { <-done }() // it ends with the term
		defer cancel(nil)
	}
	n.lead(c)
	defer n.lead(nil)
	replica.Lead(c, placement)
	fmt.Fprintf(stdout, "leading: election id %v\n", term.ElectionID())
	go announce(ctx, c, address, stdout)
	c.Run(ctx)
	return context.Cause(ctx)
}

// name is this process's among all controllers.
func name() string {
	host, err := os.Hostname()
	return fmt.Sprintf("%s-%d-%s", cmp.Or(host, "unnamed"), os.Getpid(), rand.Text()[:6]+map[bool]string{true: "?"}[err != nil])
}

// reachable is the admin address that others are told: none where it is not served over TCP, or on all of this machine's addresses, because which of those others reach is
// not known.
func reachable(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); !ok || t.IP.IsUnspecified() {
		return ""
	}
	return a.String()
}
