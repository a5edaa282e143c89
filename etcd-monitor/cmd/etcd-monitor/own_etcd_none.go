//go:build slim

package main

import (
	"context"
	"errors"
)

// startEmbedded returns an error: with the tag slim, which make run uses, etcd's server is not
// compiled in.
func (o *options) startEmbedded(context.Context) (ownEtcd, error) {
	return nil, badInput{errors.New("this program was built without an etcd of its own (tag slim): " +
		"name one with --endpoints, or take bin/etcd-monitor of make build")}
}
