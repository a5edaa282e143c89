package lab

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/linearizable"
)

// ReadsDone returns the times at which reads were answered, sorted.
func ReadsDone(history []linearizable.Call) []int64 {
	return ends(history, func(c linearizable.Call) bool { return c.Op == wire.Read })
}

// WritesDone returns the times at which writes were answered, sorted.
func WritesDone(history []linearizable.Call) []int64 {
	return ends(history, func(c linearizable.Call) bool { return c.Op == wire.Write })
}

func ends(history []linearizable.Call, kind func(linearizable.Call) bool) (out []int64) {
	for _, x := range history {
		if kind(x) && !x.Unknown && !x.Nothing {
			out = append(out, x.End)
		}
	}
	slices.Sort(out)
	return out
}

// LongestGap returns the longest time without an answer, in milliseconds.
func LongestGap(answers []int64, from, to time.Time) float64 {
	longest, last := int64(0), from.UnixNano()
	for _, a := range answers {
		if a > from.UnixNano() && a < to.UnixNano() {
			longest, last = max(longest, a-last), a
		}
	}
	return Millis(time.Duration(max(longest, to.UnixNano()-last)))
}

func Millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e5) / 100 }

// CheckHistory fails a test if the clients' history is not linearizable, or has too few calls to
// prove anything. The functions in more describe a history that is not linearizable. CheckHistory
// returns the number of calls, and the number of calls whose outcome is unknown.
func CheckHistory(t *testing.T, what string, history []linearizable.Call, least int, more ...func() string) (
	calls, unknown int) {
	t.Helper()
	for _, x := range history {
		if x.Unknown {
			unknown++
		}
	}
	t.Logf("%s: %d calls, %d of unknown outcome", what, len(history), unknown)
	if len(history) < least {
		t.Errorf("%s: only %d calls: this says little", what, len(history))
	}
	if result := porcupine.CheckOperationsTimeout(linearizable.Added, linearizable.Operations(history),
		2*time.Minute); result != porcupine.Ok {
		t.Errorf("%s: the history is not linearizable: %v", what, result)
		for _, m := range more {
			t.Log(m())
		}
	}
	return len(history), unknown
}

// Around describes the operations on a key or name shortly before the first moment at which the
// history is not linearizable.
func Around(model porcupine.Model, ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	bad := sort.Search(len(ops), func(n int) bool {
		return porcupine.CheckOperationsTimeout(model, upTo(ops, ops[n].Return),
			time.Minute) != porcupine.Ok
	})
	if bad == len(ops) {
		return "  no moment found"
	}
	begun := slices.MinFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) }).Call
	var text strings.Builder
	last := upTo(ops, ops[bad].Return)
	slices.SortFunc(last, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range last[max(0, len(last)-40):] {
		x := o.Input.(linearizable.Call)
		fmt.Fprintf(&text, "  from %.3f to %.3f ms %+v\n", float64(x.Begin-begun)/1e6, float64(x.End-begun)/1e6, x)
	}
	return text.String()
}

// upTo returns a history up to a moment. If an operation has no answer by then, its outcome is
// unknown.
func upTo(ops []porcupine.Operation, moment int64) (out []porcupine.Operation) {
	for n, o := range ops {
		x := o.Input.(linearizable.Call)
		if o.Call > moment {
			continue
		}
		if o.Return > moment {
			if x.Op == wire.Read {
				continue
			}
			x.Unknown = true
			o = porcupine.Operation{ClientId: 1<<21 + n, Input: x, Call: o.Call, Return: math.MaxInt64}
		}
		out = append(out, o)
	}
	return out
}
