//go:build !slim

package peers

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Redis is a Redis server. Each worker has its own connection from the client's pool.
type Redis struct{ client *redis.Client }

// NewRedis connects to a Redis server (HOST:PORT).
func NewRedis(ctx context.Context, addr string, connections int) (*Redis, error) {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: connections, MinIdleConns: connections})
	if err := c.Ping(ctx).Err(); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connecting to Redis at %s: %w", addr, err)
	}
	return &Redis{client: c}, nil
}

// Open implements [Peer].
func (r *Redis) Open(context.Context, int) (Store, error) { return redisStore{r.client.Conn()}, nil }

// Close implements [Peer].
func (r *Redis) Close() error { return r.client.Close() }

type redisStore struct{ conn *redis.Conn }

func (s redisStore) Get(ctx context.Context, key string) ([]byte, error) {
	return s.conn.Get(ctx, key).Bytes()
}

func (s redisStore) Put(ctx context.Context, key string, value []byte) error {
	return s.conn.Set(ctx, key, value, 0).Err()
}

func (s redisStore) Close() error { return s.conn.Close() }
