package node

import (
	"context"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// The functions in this file use streams through requests to the node's server. A program that only
// reads a stream should use client/streams instead.

func changing(k *call) { k.changes = true }

// OpenStream returns a stream's description. If the stream does not exist, it is created with
// config; if config is nil, the call fails.
func (c *Client) OpenStream(ctx context.Context, name string, config *nodeapi.StreamConfig,
	list ...Option) (*nodeapi.StreamAnswer, error) {
	return askFor[nodeapi.StreamAnswer](ctx, c, nodeapi.FuncOpenStream,
		nodeapi.OpenStreamData{Namespace: gather(list).namespace, Stream: name, Config: config}, nil)
}

// DeleteStream deletes a stream and its records.
func (c *Client) DeleteStream(ctx context.Context, name string, list ...Option) error {
	_, err := askFor[struct{}](ctx, c, nodeapi.FuncDeleteStream,
		nodeapi.StreamData{Namespace: gather(list).namespace, Stream: name}, changing)
	return err
}

// Streams returns the names of a namespace's streams.
func (c *Client) Streams(ctx context.Context, list ...Option) ([]string, error) {
	a, err := askFor[nodeapi.ListStreamsAnswer](ctx, c, nodeapi.FuncListStreams,
		nodeapi.ListStreamsData{Namespace: gather(list).namespace}, nil)
	if err != nil {
		return nil, err
	}
	return a.Streams, nil
}

// Append appends records to a partition of a stream. If consumers are slow, it may append only the
// first records; the answer says how many.
func (c *Client) Append(ctx context.Context, d nodeapi.AppendData) (*nodeapi.AppendAnswer, error) {
	return askFor[nodeapi.AppendAnswer](ctx, c, nodeapi.FuncAppend, d, changing)
}

// Read reads records of a partition.
func (c *Client) Read(ctx context.Context, d nodeapi.ReadData) (*nodeapi.ReadAnswer, error) {
	if d.WaitMillis > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(d.WaitMillis)*time.Millisecond+c.cfg.Timeout)
		defer cancel()
	}
	return askFor[nodeapi.ReadAnswer](ctx, c, nodeapi.FuncRead, d, func(k *call) { k.waits = d.WaitMillis > 0 })
}
