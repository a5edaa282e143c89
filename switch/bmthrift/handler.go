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

// handler answers calls. The state's lock also guards the handler's own data. So these data are
// accessed only inside State.Read and State.Write.
type handler struct {
	dev   target.Device
	state State
	opts  Options
	log   *slog.Logger
	port  int
	began time.Time // wall-clock time at which the device's clock was 0

	prog    *bmv2json.Program // the program that the following fields belong to
	handles map[string]*handles
	mc      *multicast

	learner *learner // nil: nobody is notified
	aged    uint64   // number of notifications of idle entries so far
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

// logRefusal logs why a call was refused, because the protocol only has codes.
func (h *handler) logRefusal(call string, err error) {
	h.log.Info("Thrift call refused", "call", call, "err", err)
}

// errContext is the error for contexts that do not exist.
var errContext = errors.New("a switch has one context, which is 0")

// read calls f with the pipeline, serialized with other protocols.
func (h *handler) read(cxt int32, f func(target.Pipeline) error) error {
	if cxt != 0 {
		return errContext
	}
	return h.state.Read(h.bound(f))
}

// write calls f as read does, for a call that makes changes.
func (h *handler) write(cxt int32, f func(target.Pipeline) error) error {
	if cxt != 0 {
		return errContext
	}
	return h.state.Write(h.bound(f))
}

// bound drops state of a program that is no longer loaded.
func (h *handler) bound(f func(target.Pipeline) error) func(target.Pipeline) error {
	return func(p target.Pipeline) error {
		if prog := p.Program(); prog != h.prog {
			h.prog, h.handles, h.mc = prog, map[string]*handles{}, newMulticast()
		}
		return f(p)
	}
}

// table finds a table and the handles of its entries.
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

// entries returns a table's entries, each with a handle.
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

// sameMatch says whether an entry of the engine is one that the program contains.
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

// entry returns the match of the entry with a handle.
func (h *handler) entry(p target.Pipeline, name string,
	handle idl.Handle) (*bmv2json.Table, *handles, int, error) {
	t, hs, err := h.table(name)
	if err != nil {
		return nil, nil, 0, err
	}
	i, code := hs.find(handle)
	if code != 0 { // another protocol may have added the entry
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

// direct refuses a call at a table of the wrong kind. If want is set, the table must be a direct
// one, whose entries name actions. Otherwise it must be an indirect one.
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

// unsupported is the error for calls that this switch does not support.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), target.ErrUnsupported)
}
