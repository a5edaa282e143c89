package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

const (
	etcdWait  = 5 * time.Second // timeout for etcd's first answer
	trainWait = 5 * time.Minute // timeout for the whole training; an export of 400 KB takes seconds
)

// dictionary is the command that manages the dictionaries for compressing values.
func dictionary(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dictionary",
		Short: "Train a dictionary for compressing values in the network",
		Args:  cobra.NoArgs,
	}
	var o options
	var size int
	var secrets bool
	train := &cobra.Command{
		Use:   "train EXPORT",
		Short: "Train a dictionary from an export of etcd, and store it in etcd",
		Long: `train reads EXPORT (- is stdin), the output of "etcdctl get --prefix / -w json". It makes a zstd
dictionary of the most typical values and stores it in etcd under --prefix, as the next version.
Gateways find the dictionary within a minute. They keep older dictionaries, and can still read
values that were compressed with them.

The dictionary consists of values. Everyone who can read the gateways' keys in etcd can read them.
train therefore leaves out Kubernetes' secrets (/registry/secrets/), other keys that give access by
default (docs/etcd.md, "Secrets"), and the gateways' own keys.`,
		Example: `  etcdctl get --prefix /registry/ -w json |
    etcd-monitor dictionary train - --endpoints 10.0.0.1:2379`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return badInput{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.train(cmd.Context(), args[0], size, secrets, cmd.InOrStdin(), stdout)
		},
	}
	o.flagsOfEtcd(train.Flags(), "")
	o.flagReserved(train.Flags())
	train.Flags().IntVar(&size, "size", slotcodec.DictionarySize, "size of the dictionary in bytes")
	train.Flags().BoolVar(&secrets, "with-secrets", false, "use the values of Kubernetes' secrets too")
	cmd.AddCommand(train)
	return cmd
}

func (o *options) train(ctx context.Context, file string, size int, secrets bool, stdin io.Reader,
	stdout io.Writer) error {
	if err := o.checkEtcd(); err != nil {
		return err
	}
	if size < 256 || size > 1<<20 {
		return badInput{fmt.Errorf("--size %d: give a number of bytes from 256 to %d", size, 1<<20)}
	}
	from := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return badInput{err}
		}
		defer f.Close()
		from = f
	}
	kvs, err := slotcodec.ReadExport(from)
	if err != nil {
		return badInput{fmt.Errorf("%s: %w", file, err)}
	}
	own := o.reserved()
	var samples [][]byte
	for _, kv := range kvs {
		if (secrets || !placement.Credential(string(kv.Key))) && !own.Has(string(kv.Key)) {
			samples = append(samples, kv.Value)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, trainWait)
	defer cancel()
	return o.withEtcd(ctx, func(ask context.Context, etcd *clientv3.Client) error {
		if _, err := etcd.Get(ask, o.prefix, clientv3.WithCountOnly()); err != nil {
			return fmt.Errorf("asking etcd at %s: %w", strings.Join(o.endpoints, ","), err)
		}
		version, bytes, err := slotcodec.NewLibrary(etcd, o.prefix).Publish(ctx, samples, size)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "dictionary %d: %d bytes, from %d of %d values\n", version, bytes, len(samples), len(kvs))
		return nil
	})
}
