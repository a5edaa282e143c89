package p4rt

import (
	"errors"
	"fmt"
	"strings"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// UpdateError is a switch's error about one update of a batch.
type UpdateError struct {
	Index   int // the update's index in the arguments of Write
	Update  *v1.Update
	Code    codes.Code
	Message string
}

// WriteError reports a batch that failed in part. It holds the failed updates, in order. The other
// updates took effect.
type WriteError struct {
	Switch  string
	Total   int // number of updates in the batch
	Updates []UpdateError

	info *Info
}

func (e *WriteError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s refused %d of %d updates:", e.Switch, len(e.Updates), e.Total)
	for n, u := range e.Updates {
		if n == 3 {
			fmt.Fprintf(&b, " ... and %d more", len(e.Updates)-n)
			break
		}
		if n > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " %s: %v", Describe(e.info, u.Update), u.Code)
		if u.Message != "" {
			fmt.Fprintf(&b, " (%s)", u.Message)
		}
	}
	return b.String()
}

// Code returns the common code of all failed updates, or Unknown if they differ.
func (e *WriteError) Code() codes.Code {
	for _, u := range e.Updates[1:] {
		if u.Code != e.Updates[0].Code {
			return codes.Unknown
		}
	}
	return e.Updates[0].Code
}

// unpackWriteError extracts the errors of single updates from a failed Write. By P4Runtime 1.5,
// section 12.3, such an error has one detail for each update, in order, which is OK if the update
// took effect. An error without such details concerns the whole request, and is returned unchanged.
func unpackWriteError(info *Info, name string, updates []*v1.Update, err error) error {
	details := status.Convert(err).Details()
	if len(details) != len(updates) {
		return err
	}
	we := &WriteError{Switch: name, Total: len(updates), info: info}
	for n, d := range details {
		pe, ok := d.(*v1.Error)
		if !ok {
			return err
		}
		if code := codes.Code(pe.CanonicalCode); code != codes.OK {
			we.Updates = append(we.Updates, UpdateError{Index: n, Update: updates[n], Code: code, Message: pe.Message})
		}
	}
	if len(we.Updates) == 0 {
		return err
	}
	return we
}

// Describe formats an update for people: "INSERT ipv4_lpm ipv4_dst=10.0.0.1/32 -> forward(...)".
func Describe(info *Info, u *v1.Update) string {
	what := ""
	switch e := u.GetEntity().GetEntity().(type) {
	case *v1.Entity_TableEntry:
		if info != nil {
			if d, err := info.Decode(e.TableEntry); err == nil {
				what = d.String()
			}
		}
		if what == "" {
			what = fmt.Sprintf("entry of table %d", e.TableEntry.GetTableId())
		}
	case *v1.Entity_PacketReplicationEngineEntry:
		if g := e.PacketReplicationEngineEntry.GetMulticastGroupEntry(); g != nil {
			what = fmt.Sprintf("multicast group %d", g.MulticastGroupId)
		} else {
			what = fmt.Sprintf("clone session %d", e.PacketReplicationEngineEntry.GetCloneSessionEntry().GetSessionId())
		}
	case *v1.Entity_RegisterEntry:
		what = fmt.Sprintf("register %d[%d]", e.RegisterEntry.RegisterId, e.RegisterEntry.GetIndex().GetIndex())
		if info != nil {
			if r, ok := info.registers.byID[e.RegisterEntry.RegisterId]; ok {
				what = fmt.Sprintf("register %s[%d]", alias(r.Preamble), e.RegisterEntry.GetIndex().GetIndex())
			}
		}
	default:
		what = fmt.Sprintf("%T", e)
	}
	return u.GetType().String() + " " + what
}

// IsUnsupported reports whether a target refused something that it does not implement, as
// simple_switch_grpc refuses registers.
func IsUnsupported(err error) bool {
	var we *WriteError
	if errors.As(err, &we) {
		return we.Code() == codes.Unimplemented
	}
	return status.Code(err) == codes.Unimplemented
}
