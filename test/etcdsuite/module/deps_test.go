package module

import (
	// What etcd's tests need alongside the packages that are used here, so that `go mod tidy` keeps
	// it.
	_ "go.etcd.io/etcd/etcdutl/v3/snapshot"
	_ "go.etcd.io/etcd/tests/v3/framework/integration"

	// What the tests use in the place of clientv3.New.
	_ "github.com/netcraq/netcraq/test/etcdsuite/direct"
)
