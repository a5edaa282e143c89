package etcderrors

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The code of an error is the same in all forms in which etcd's clients give it.
func TestCode(t *testing.T) {
	for err, want := range map[error]codes.Code{
		nil:                       codes.OK,
		rpctypes.ErrGRPCUserEmpty: codes.InvalidArgument, // as gRPC gives it
		rpctypes.ErrUserEmpty:     codes.InvalidArgument, // as clientv3 does
		rpctypes.Error(rpctypes.ErrGRPCPermissionDenied):       codes.PermissionDenied,
		fmt.Errorf("asking: %w", rpctypes.ErrInvalidAuthToken): codes.Unauthenticated,
		status.Error(codes.Unavailable, "nothing of etcd's"):   codes.Unavailable,
		errors.New("nothing of gRPC's"):                        codes.Unknown,
	} {
		if got := Code(err); got != want {
			t.Errorf("%v: %v; want %v", err, got, want)
		}
	}
}
