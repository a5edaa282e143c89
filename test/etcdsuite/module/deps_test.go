package module

import (
	// Packages that etcd's tests need in addition to those that this module uses. The imports make
	// `go mod tidy` keep them.
	_ "go.etcd.io/etcd/etcdutl/v3/snapshot"
	_ "go.etcd.io/etcd/tests/v3/framework/integration"

	// The package that the tests use instead of clientv3.New.
	_ "github.com/netcraq/netcraq/test/etcdsuite/direct"
)
