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

	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/leadership"
)

// process is this controller process, whether it leads or stands by.
type process struct {
	network   *network
	placement *leadership.Placement // nil if no keys of etcd are placed
	replica   adminserver.Replica
	address   string // address of the admin API, for messages
	log       *slog.Logger
	stdout    io.Writer
}

// serve serves the admin API until ctx ends. Meanwhile this process leads. Without etcd it always
// leads. With etcd it leads whenever it is elected.
func (p *process) serve(ctx context.Context, o options, store saved.Store) error {
	door, err := adminserver.Listen(o.admin, p.log)
	if err != nil {
		return err
	}
	defer door.Close()
	p.address = strings.Join(door.Addresses(), " and ")
	p.replica.Token, p.replica.ReadToken = door.Tokens()
	config := leadership.Config{Store: store, Lead: p.lead, Log: p.log}
	mux := http.NewServeMux()
	mux.Handle("/", &p.replica)
	if o.replicated() {
		config.Etcd = &o.etcd
		config.Identity = etcdstore.Identity{Name: name(), Admin: reachable(door.TCP())}
		config.StandBy = func(leader etcdstore.Identity) {
			p.log.Info("another controller leads", "leader", leader.Name, "admin", leader.Admin)
			p.replica.StandBy(leader.Admin)
		}
		mux.Handle("GET "+etcdstore.AlivePath, etcdstore.Alive(config.Identity))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.network.follow(ctx)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := door.Serve(ctx, mux); err != nil {
			cancel(err)
		}
	})
	if o.replicated() {
		fmt.Fprintf(p.stdout, "standing by: %s; admin API at %s\n", config.Identity.Name, p.address)
	}
	err = leadership.Run(ctx, config)
	cancel(nil)
	serving.Wait()
	if !errors.Is(err, context.Canceled) {
		return err
	}
	if o.replicated() {
		fmt.Fprintln(p.stdout, "stopped: another controller takes over, if one stands by")
	} else {
		fmt.Fprintf(p.stdout, "stopped: the switches run on with what they hold; %s\n", afterStop(p.network.topology()))
	}
	return nil
}

// lead runs a controller for a term, and returns the reason for the term's end.
func (p *process) lead(ctx context.Context, term *leadership.Term) error {
	p.replica.StandBy("") // the previous leader's term is over
	s, err := leadership.New(term, leadership.Options{Topology: p.network.topology(), Replica: &p.replica,
		Placement: p.placement, Log: p.log})
	if err != nil {
		return err
	}
	p.network.lead(s.Controller)
	defer p.network.lead(nil)
	if term.Elected != nil {
		fmt.Fprintf(p.stdout, "leading: election id %v\n", term.Elected.ElectionID())
	}
	go announce(ctx, s.Controller, p.address, p.stdout)
	return s.Run(ctx)
}

// name identifies this process among all controllers.
func name() string {
	host, err := os.Hostname()
	return fmt.Sprintf("%s-%d-%s", cmp.Or(host, "unnamed"), os.Getpid(), rand.Text()[:6]+map[bool]string{true: "?"}[err != nil])
}

// reachable returns the admin address for other controllers. It is empty if the API is not served
// over TCP. It is also empty if the API is served on all addresses of this machine, because it is
// unknown which of them other controllers can reach.
func reachable(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); !ok || t.IP.IsUnspecified() {
		return ""
	}
	return a.String()
}
