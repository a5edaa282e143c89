package coordinators

import (
	"context"

	"github.com/netcraq/netcraq/client/node"
)

type nodeClient struct{ c *node.Client }

func openNode(ctx context.Context, address string) (Client, error) {
	c, err := node.Connect(ctx, node.Config{Socket: address})
	if err != nil {
		return nil, err
	}
	return nodeClient{c}, nil
}

func (n nodeClient) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	held, err := n.c.Lock(ctx, name, node.TTL(TTL))
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

func (n nodeClient) Put(ctx context.Context, key, value string) error {
	_, err := n.c.Put(ctx, key, []byte(value))
	return err
}

func (n nodeClient) Watch(ctx context.Context, key string, tell func(string), failed func(error)) error {
	w, err := n.c.Watch(ctx, node.WatchConfig{Keys: []string{key}})
	if err != nil {
		return err
	}
	go func() {
		defer w.Close()
		for {
			e, err := w.Next(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				failed(err)
				return
			case e.Found:
				tell(string(e.Value))
			}
		}
	}()
	return nil
}

func (nodeClient) Name() string { return "client/node" }

func (n nodeClient) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), TTL)
	defer cancel()
	return n.c.Close(ctx)
}
