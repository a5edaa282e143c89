package sidecar

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/nodeapi/kinds"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// flagsOfEtcd adds the flags for etcd. They have the same names as the flags of etcd-monitor.
func (o *options) flagsOfEtcd(f *pflag.FlagSet) {
	f.StringSliceVar(&o.etcd.Endpoints, "endpoints", nil, "client URLs of etcd-monitor, or of an etcd without one, for durable namespaces (default: no namespace is durable)")
	f.StringVar(&o.etcd.CA, "cacert", "", "CA certificates that must have signed the certificate of --endpoints (PEM)")
	f.StringVar(&o.etcd.Cert, "cert", "", "certificate to present to --endpoints (PEM)")
	f.StringVar(&o.etcd.Key, "key", "", "private key of --cert (PEM)")
	f.StringVar(&o.etcd.User, "user", "", "etcd user of this server, if etcd's authentication is enabled; it must be able to read and write all keys under "+durable.Prefix)
	f.StringVar(&o.etcd.PasswordFile, "password-file", "", "file with this user's password")
}

// checkDurable returns an error if a policy has durable namespaces but no etcd is configured.
func (o *options) checkDurable(p *authority.Policy) error {
	if p.HasDurable() && !o.etcd.Given() {
		return errors.New("it has durable namespaces: give --endpoints, where their keys are to be")
	}
	return nil
}

// dialEtcd begins to connect to etcd. It returns nil if no etcd is configured.
func (o *options) dialEtcd() (*durable.Connection, error) {
	if !o.etcd.Given() {
		if o.etcd.CA+o.etcd.Cert+o.etcd.Key+o.etcd.User+o.etcd.PasswordFile != "" {
			return nil, errors.New("--cacert, --cert, --key, --user and --password-file are for --endpoints: give it too")
		}
		return nil, nil
	}
	connection, err := durable.Dial(o.etcd)
	if err != nil {
		return nil, fmt.Errorf("--endpoints: %w", err)
	}
	return connection, nil
}

// withDurable adds durable keys to a store. The caller must call changed when the defaults of
// namespaces have changed.
func withDurable(ctx context.Context, volatile store.Store, connection *durable.Connection, quotas *authority.Quotas,
	policy *authority.PolicyFile, registry prometheus.Registerer) (both *kinds.Store, end func()) {
	st := durable.New(durable.Options{Etcd: connection, Quota: quotas.Keys, Metrics: registry})
	defaults := &kinds.Defaults{Said: func(string) (durable, said bool) { return false, false }}
	if policy != nil {
		defaults.Said = policy.Durable
	}
	both = kinds.New(volatile, st, defaults.Of)
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		st.FollowMade(ctx, func(namespaces map[string]bool) {
			defaults.Made(namespaces)
			both.Changed()
		})
	}()
	return both, func() {
		stop()
		<-done
		_ = st.Close()
		_ = connection.Close()
	}
}
