package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
)

// sealing is the command that manages the sealing keys. Gateways use these keys to seal the content
// of placed keys in the switches.
func sealing(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "seal",
		Short: "Show or replace the keys that seal cells in the network",
		Args:  cobra.NoArgs,
	}
	var o options
	show := &cobra.Command{
		Use:   "show",
		Short: "List the keys by their numbers, and when they were made",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withSeals(cmd.Context(), func(ctx context.Context, keys *seal.Keys) error {
				if err := keys.Load(ctx); err != nil {
					return err
				}
				primary, _ := keys.Ring().Primary()
				all := keys.Ring().Keys()
				ids := make([]uint32, 0, len(all))
				for id := range all {
					ids = append(ids, id)
				}
				slices.SortFunc(ids, func(a, b uint32) int { return all[a].Compare(all[b]) })
				for _, id := range ids {
					what := "opens"
					if id == primary {
						what = "opens and seals"
					}
					fmt.Fprintf(stdout, "%10d  %s  %s\n", id, all[id].UTC().Format(time.RFC3339), what)
				}
				return nil
			})
		},
	}
	o.flagsOfEtcd(show.Flags(), "")
	var p options
	var drop bool
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new key, with which gateways seal from then on",
		Long: `rotate makes a new key, and gateways use it at once. They seal their cells again with it. The
old keys are dropped a day later.

Gateways rotate by themselves (--seal-age). If somebody may know a key, rotate by hand and pass
--drop-old, so that gateways reject everything sealed with old keys. The controller then removes
every placed key from the network, as if its slot were forged. The keys return after an hour, and
etcd answers for them meanwhile.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withSeals(cmd.Context(), func(ctx context.Context, keys *seal.Keys) error {
				id, err := keys.Rotate(ctx, drop)
				if err != nil {
					return err
				}
				fmt.Fprintf(stdout, "key %d is sealed with from now on; %d open\n", id, len(keys.Ring().Keys()))
				return nil
			})
		},
	}
	p.flagsOfEtcd(rotate.Flags(), "")
	rotate.Flags().BoolVar(&drop, "drop-old", false, "drop all other keys at once")
	cmd.AddCommand(show, rotate)
	return cmd
}

// withSeals calls the function what with the sealing keys that etcd stores.
func (o *options) withSeals(ctx context.Context, what func(context.Context, *seal.Keys) error) error {
	if err := o.checkEtcd(); err != nil {
		return err
	}
	return o.withEtcd(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		if err := what(ctx, seal.NewKeys(etcd, o.prefix)); err != nil {
			return fmt.Errorf("etcd at %s: %w", strings.Join(o.endpoints, ","), err)
		}
		return nil
	})
}

// checkEtcd checks the flags for connecting to the gateways' etcd.
func (o *options) checkEtcd() error {
	if o.endpoints == nil {
		return badInput{errors.New("--endpoints: give those of the etcd that the gateways use")}
	}
	for _, err := range []error{o.checkUpstream(), o.checkOwn()} {
		if err != nil {
			return badInput{err}
		}
	}
	return nil
}

// withEtcd calls the function what with a client of the gateways' etcd. The context ends after a
// short time.
func (o *options) withEtcd(ctx context.Context, what func(context.Context, *clientv3.Client) error) error {
	upstream, err := gateway.Dial(gateway.UpstreamConfig{Endpoints: o.endpoints, TLS: o.towards})
	if err != nil {
		return err
	}
	defer upstream.Close()
	ctx, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	etcd, err := upstream.NewClient(ctx, o.user, o.secret)
	if err != nil {
		return err
	}
	defer etcd.Close()
	return what(ctx, etcd)
}
