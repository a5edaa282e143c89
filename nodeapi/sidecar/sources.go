package sidecar

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/netcraq/netcraq/nodeapi/etcdevents"
	"github.com/netcraq/netcraq/streams/source"
)

// Kind is a kind of sources for streams, with its configuration by the operator.
type Kind struct {
	// Name is the name of the kind in a stream's configuration.
	Name string
	// Flags adds the command-line flags for the operator's configuration.
	Flags func(*pflag.FlagSet)
	// Open prepares the kind after the flags were parsed. It returns a nil Maker if the operator
	// has not configured the kind. The function `end` is called when the server has ended.
	Open func(ctx context.Context, log *slog.Logger) (makes source.Maker, end func(), err error)
}

// ofEtcd returns the kind of sources that read from etcd, which every sidecar has.
func ofEtcd() Kind {
	path := ""
	return Kind{Name: "etcd",
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&path, "streams-etcd", "", "`FILE` (YAML) with an etcd whose keys may fill streams, and the keys that each namespace may use (docs/streams.md; default: none)")
		},
		Open: func(context.Context, *slog.Logger) (source.Maker, func(), error) {
			if path == "" {
				return nil, nil, nil
			}
			o, end, err := etcdevents.Open(path)
			if err != nil {
				return nil, nil, fmt.Errorf("--streams-etcd %s: %w", path, err)
			}
			return o.Make, end, nil
		}}
}

// openSources prepares all kinds. The caller must call end when the server has ended.
func openSources(ctx context.Context, kinds []Kind, log *slog.Logger) (all map[string]source.Maker, end func(),
	err error) {
	all = map[string]source.Maker{}
	var ends []func()
	end = func() {
		for _, e := range ends {
			e()
		}
	}
	for _, k := range kinds {
		makes, e, err := k.Open(ctx, log)
		if err != nil {
			end()
			return nil, nil, err
		}
		if makes != nil {
			all[k.Name], ends = makes, append(ends, e)
		}
	}
	return all, end, nil
}
