package etcderrors

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Code returns the same code for all forms in which etcd's clients return an error.
func TestCode(t *testing.T) {
	for err, want := range map[error]codes.Code{
		nil: codes.OK,
		// the form in which gRPC returns the error
		rpctypes.ErrGRPCUserEmpty: codes.InvalidArgument,
		// the form in which clientv3 returns the error
		rpctypes.ErrUserEmpty:                                  codes.InvalidArgument,
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
