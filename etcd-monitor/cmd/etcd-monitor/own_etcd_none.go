//go:build slim

package main

import (
	"context"
	"errors"
)

// startEmbedded returns an error, because the tag slim leaves etcd's server out of the program.
// make run uses this tag.
func (o *options) startEmbedded(context.Context) (ownEtcd, error) {
	return nil, badInput{errors.New("this program was built without an etcd of its own (tag slim): " +
		"name one with --endpoints, or take bin/etcd-monitor of make build")}
}
