package bmthrift

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// handler answers calls. The state's lock also guards the handler's own data. All methods therefore
// access these data only inside State.Read and State.Write.
type handler struct {
	dev   target.Device
	state State
	opts  Options
	log   *slog.Logger
	port  int
	began time.Time // the wall-clock time at which the device's clock was 0

	prog    *bmv2json.Program // the loaded program, to which the following fields belong
	handles map[string]*handles
	mc      *multicast

	learner *learner // nil if nobody receives notifications
	aged    uint64   // number of idle-entry notifications sent so far
}

func newHandler(dev target.Device, state State, opts Options, log *slog.Logger) *handler {
	h := &handler{dev: dev, state: state, opts: opts, log: log,
		began: time.Now().Add(-dev.Now())}
	if opts.Publisher != nil {
		h.learner = &learner{device: opts.DeviceID, to: opts.Publisher}
		state.OnDigest(h.learner.digest)
		state.OnIdle(h.idle)
	}
	state.OnReplication(func(p target.Pipeline) {
		if h.prog == p.Program() {
			h.mc.follow(p)
		}
	})
	return h
}

// logRefusal logs why a call failed, because the protocol can send only a code.
func (h *handler) logRefusal(call string, err error) {
	h.log.Info("Thrift call refused", "call", call, "err", err)
}

// errContext is the error for a context other than 0.
var errContext = errors.New("a switch has one context, which is 0")

// read calls f with the pipeline. It excludes writes by other protocols meanwhile.
func (h *handler) read(cxt int32, f func(target.Pipeline) error) error {
	if cxt != 0 {
		return errContext
	}
	return h.state.Read(h.bound(f))
}

// write calls f with the pipeline and commits the changes that f makes.
func (h *handler) write(cxt int32, f func(target.Pipeline) error) error {
	if cxt != 0 {
		return errContext
	}
	return h.state.Write(h.bound(f))
}

// bound wraps f so that handles and multicast nodes of an earlier program are dropped first.
func (h *handler) bound(f func(target.Pipeline) error) func(target.Pipeline) error {
	return func(p target.Pipeline) error {
		if prog := p.Program(); prog != h.prog {
			h.prog, h.handles, h.mc = prog, map[string]*handles{}, newMulticast()
		}
		return f(p)
	}
}

// table finds a table of the loaded program by its name, and the handles of its entries.
func (h *handler) table(name string) (*bmv2json.Table, *handles, error) {
	t := h.prog.Table(name)
	if t == nil {
		return nil, nil, refusal(idl.TableCodeInvalidTableName, "there is no table %q", name)
	}
	if h.handles[name] == nil {
		h.handles[name] = newHandles()
	}
	return t, h.handles[name], nil
}

// entries returns a table's entries. It first gives a handle to each entry that has none.
func (h *handler) entries(p target.Pipeline, name string) (*bmv2json.Table, *handles,
	[]target.TableEntry, error) {
	t, hs, err := h.table(name)
	if err != nil {
		return nil, nil, nil, err
	}
	all, err := p.Entries(name)
	if err != nil {
		return nil, nil, nil, tableFailure(err, idl.TableCodeInvalidTableName, idl.TableCodeError)
	}
	hs.sync(all, func(e *target.TableEntry) int {
		if !e.IsConst {
			return len(t.ConstEntries)
		}
		return slices.IndexFunc(t.ConstEntries, func(c bmv2json.ConstEntry) bool {
			return sameMatch(t, c.Match, e)
		})
	})
	return t, hs, all, nil
}

// sameMatch reports whether the engine's entry e has this match, which is the match of a const
// entry in the program.
func sameMatch(t *bmv2json.Table, match []bmv2json.KeyValue, e *target.TableEntry) bool {
	for i, k := range t.Keys {
		c, m := match[i], e.Match[i]
		value := slices.Clone(c.Value)
		switch k.Kind {
		case bmv2json.MatchLPM:
			clearBelow(value, k.Width-c.PrefixLen)
		case bmv2json.MatchTernary, bmv2json.MatchOptional:
			for j := range value {
				value[j] &= c.Mask[j]
			}
		}
		if !slices.Equal(value, m.Value) || !slices.Equal(c.Mask, m.Mask) ||
			c.PrefixLen != m.PrefixLen {
			return false
		}
	}
	return true
}

// entry finds an entry of a table by its handle and returns the index of its slot.
func (h *handler) entry(p target.Pipeline, name string,
	handle idl.Handle) (*bmv2json.Table, *handles, int, error) {
	t, hs, err := h.table(name)
	if err != nil {
		return nil, nil, 0, err
	}
	i, code := hs.find(handle)
	if code != 0 { // Another protocol may have added the entry since the last sync.
		if _, _, _, err := h.entries(p, name); err != nil {
			return nil, nil, 0, err
		}
		i, code = hs.find(handle)
	}
	if code != 0 {
		return nil, nil, 0, refusal(code, "table %s has no entry with handle %d", name, handle)
	}
	return t, hs, i, nil
}

// direct returns an error if a table has the wrong kind. If want is set, the table must be direct:
// its entries name actions. Otherwise the table must be indirect.
func direct(t *bmv2json.Table, want bool) error {
	if (t.Kind == bmv2json.TableSimple) == want {
		return nil
	}
	if want {
		return refusal(idl.TableCodeWrongTableType,
			"table %s has an action profile: its entries name members or groups, not actions",
			t.Name)
	}
	return refusal(idl.TableCodeWrongTableType,
		"table %s has no action profile: its entries name actions", t.Name)
}

// unsupported returns the error for calls that this switch does not support.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), target.ErrUnsupported)
}
