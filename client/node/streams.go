package node

import (
	"context"
	"time"

	api "github.com/netcraq/netcraq/api/node"
)

// Streams: what is asked for by requests. Whoever reads a stream uses client/streams.

func changing(k *call) { k.changes = true }

// OpenStream makes a stream, where there is none of this name, and says what it is. With no
// configuration it makes none.
func (c *Client) OpenStream(ctx context.Context, name string, config *api.StreamConfig,
	list ...Option) (*api.StreamAnswer, error) {
	return askFor[api.StreamAnswer](ctx, c, api.FuncOpenStream,
		api.OpenStreamData{Namespace: gather(list).namespace, Stream: name, Config: config}, nil)
}

// DeleteStream ends a stream, with its records.
func (c *Client) DeleteStream(ctx context.Context, name string, list ...Option) error {
	_, err := askFor[struct{}](ctx, c, api.FuncDeleteStream,
		api.StreamData{Namespace: gather(list).namespace, Stream: name}, changing)
	return err
}

// Streams has the names of a namespace's streams.
func (c *Client) Streams(ctx context.Context, list ...Option) ([]string, error) {
	a, err := askFor[api.ListStreamsAnswer](ctx, c, api.FuncListStreams,
		api.ListStreamsData{Namespace: gather(list).namespace}, nil)
	if err != nil {
		return nil, err
	}
	return a.Streams, nil
}

// Append appends records to a partition of a stream. Where consumers are slow it may append the
// first of them only, as the answer says.
func (c *Client) Append(ctx context.Context, d api.AppendData) (*api.AppendAnswer, error) {
	return askFor[api.AppendAnswer](ctx, c, api.FuncAppend, d, changing)
}

// Read asks for records of a partition.
func (c *Client) Read(ctx context.Context, d api.ReadData) (*api.ReadAnswer, error) {
	if d.WaitMillis > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(d.WaitMillis)*time.Millisecond+c.cfg.Timeout)
		defer cancel()
	}
	return askFor[api.ReadAnswer](ctx, c, api.FuncRead, d, func(k *call) { k.waits = d.WaitMillis > 0 })
}
