// Package etcderrors interprets the errors that etcd's clients return.
package etcderrors

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Code returns the code of an error from etcd or gRPC. It returns codes.OK if err is nil.
// status.Code does not find the code of clientv3's errors (rpctypes.EtcdError), and returns
// codes.Unknown for them.
func Code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// Definite reports whether an error means that etcd has refused a request, so that etcd did not
// execute it and never will.
func Definite(err error) bool {
	switch Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return true
	case codes.ResourceExhausted:
		// etcd returns its own errors with these codes before it proposes a request to Raft. gRPC
		// uses the same codes for answers that are too large.
		return errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) ||
			errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests)
	}
	return false
}
