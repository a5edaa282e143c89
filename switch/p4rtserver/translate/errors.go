package translate

import (
	"errors"
	"fmt"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/netcraq/netcraq/switch/target"
)

// kinds maps the errors of engines to canonical status codes.
var kinds = []struct {
	err  error
	code codes.Code
}{
	{target.ErrNotFound, codes.NotFound},
	{target.ErrExists, codes.AlreadyExists},
	{target.ErrFull, codes.ResourceExhausted},
	{target.ErrInvalid, codes.InvalidArgument},
	{target.ErrImmutable, codes.PermissionDenied},
	{target.ErrUnsupported, codes.Unimplemented},
	{target.ErrNoPipeline, codes.FailedPrecondition},
	{target.ErrOutOfRange, codes.OutOfRange},
}

// Canonical returns the status with the canonical code of err. err comes from an engine or from
// this package.
func Canonical(err error) *status.Status {
	if err == nil {
		return status.New(codes.OK, "")
	}
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) {
		return own.GRPCStatus()
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return status.New(k.code, err.Error())
		}
	}
	return status.New(codes.Internal, err.Error())
}

// BatchError returns the outcome of a batch in the form of the specification's "Error Reporting"
// (section 12.3, and 13.3 for reads). It returns nil if every element succeeded. Otherwise it
// returns UNKNOWN with one p4.v1.Error per element, in order.
func BatchError(outcome []error, what string) error {
	failed := 0
	for _, err := range outcome {
		if err != nil {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	st := &spb.Status{Code: int32(codes.Unknown), Message: what}
	for _, err := range outcome {
		c := Canonical(err)
		detail, marshalErr := anypb.New(&p4v1.Error{CanonicalCode: int32(c.Code()),
			Message: c.Message()})
		if marshalErr != nil {
			return status.Errorf(codes.Internal, "reporting %q: %v", c.Message(), marshalErr)
		}
		st.Details = append(st.Details, detail)
	}
	return status.ErrorProto(st)
}

// OneofName returns the name, in protobuf's text form, of the field that is set in a message with
// one oneof. It is for error messages.
func OneofName(m proto.Message) string {
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().Get(0)); f != nil {
		return string(f.Name())
	}
	return "missing"
}

// Errorf returns the error of one update or request, with a canonical code.
func Errorf(code codes.Code, format string, args ...any) error {
	return status.Error(code, fmt.Sprintf(format, args...))
}

func Invalidf(format string, args ...any) error {
	return Errorf(codes.InvalidArgument, format,
		args...)
}
