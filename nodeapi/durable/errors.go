package durable

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/etcd/etcderrors"
)

// errLeaseGone means that etcd does not know the lease for tombstones. In this case nothing was
// written.
var errLeaseGone = errors.New("etcd does not know the lease of deleted keys")

// failure converts an error of etcd, or of the connection to etcd, to an error with a code. The
// argument writes says whether the call may write.
func failure(ctx context.Context, doing string, err error, writes bool) error {
	if ours := new(nodeapi.Error); errors.As(err, &ours) {
		return err
	}
	out := &nodeapi.Error{Code: nodeapi.CodeUnavailable, Message: fmt.Sprintf("%s in etcd: %v", doing, err), Do: "try again"}
	definite := etcderrors.Definite(err)
	switch code := etcderrors.Code(err); {
	case writes && !definite:
		out.Code = nodeapi.CodeOutcomeUnknown
		out.Do = "read the key, or write again with a compare and swap on the version that is known"
	case code == codes.PermissionDenied || code == codes.Unauthenticated:
		out.Code = nodeapi.CodePermissionDenied
		out.Do = fmt.Sprintf("the node's server needs the right to read and write what begins with %s in etcd", Prefix)
	case writes && code == codes.FailedPrecondition: // package door refused the request
		out.Code, out.Do = nodeapi.CodeQuotaExceeded, "delete keys that are not needed: they go after a while"
	case errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace):
		out.Code = nodeapi.CodeNoRoom
		out.Do = "have the operator give etcd more space, or compact and defragment it"
	case errors.Is(ctx.Err(), context.Canceled):
		out.Code, out.Do = nodeapi.CodeCanceled, ""
	case ctx.Err() != nil:
		out.Code = nodeapi.CodeTimeout
	case code == codes.InvalidArgument:
		out.Code, out.Do = nodeapi.CodeInternal, ""
	}
	return out
}
