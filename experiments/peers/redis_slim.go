//go:build slim

package peers

import (
	"context"
	"errors"
)

// NewRedis says that there is no client: for make run Redis' is not compiled.
func NewRedis(context.Context, string, int) (Peer, error) {
	return nil, errors.New("this program was built without Redis' client (tag slim): take bin/netcraq-peers of make build")
}
