//go:build slim

package peers

import (
	"context"
	"errors"
)

// NewRedis returns an error, because the slim build (make run) has no Redis client.
func NewRedis(context.Context, string, int) (Peer, error) {
	return nil, errors.New("this program was built without Redis' client (tag slim): take bin/netcraq-peers of make build")
}
