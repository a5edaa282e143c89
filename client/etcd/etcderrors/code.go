// Package etcderrors reads the errors that etcd's clients give.
package etcderrors

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Code returns the code of an error from etcd or gRPC; codes.OK if there is none. status.Code does
// not find the code of clientv3's errors (rpctypes.EtcdError), and returns codes.Unknown for them.
func Code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// Definite reports whether an error means that etcd did not execute a request and never will: etcd
// looked at it and refused it.
func Definite(err error) bool {
	switch Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return true
	case codes.ResourceExhausted:
		// etcd returns its own errors of these codes before it proposes anything. gRPC uses the
		// codes, too, for answers that are too large.
		return errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) ||
			errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests)
	}
	return false
}
