package module

import (
	// etcd's tests need these packages, in addition to the packages that this module uses. The
	// imports make `go mod tidy` keep them in go.mod.
	_ "go.etcd.io/etcd/etcdutl/v3/snapshot"
	_ "go.etcd.io/etcd/tests/v3/framework/integration"

	// The tests use this package instead of clientv3.New.
	_ "github.com/netcraq/netcraq/test/etcdsuite/direct"
)
