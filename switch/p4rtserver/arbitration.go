package p4rtserver

import (
	"cmp"
	"sync"
	"sync/atomic"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// maxStreams is the largest number of controllers with the same role.
const maxStreams = 64

// roleKey identifies a role by its name, or by the older numeric id (deprecated since P4Runtime
// 1.4). The zero roleKey is the default role.
type roleKey struct {
	name string
	id   uint64
}

func keyOfRole(name string, id uint64) roleKey {
	if name != "" {
		return roleKey{name: name}
	}
	return roleKey{id: id}
}

// role has the controllers that share a P4Runtime role. Every role has full pipeline access. The
// meaning of role.config is agreed out of band, and this server supports none.
type role struct {
	key     roleKey
	streams map[*stream]bool
	primary atomic.Pointer[primary]
	// the highest election id of any primary so far; nil before the first primary
	highest *p4v1.Uint128
}

// primary is the controller that may write, with the election id that made it primary.
type primary struct {
	stream   *stream
	election *p4v1.Uint128
}

// leads reports whether st is the role's primary.
func (r *role) leads(st *stream) bool {
	p := r.primary.Load()
	return p != nil && p.stream == st
}

// arbiter decides which controller is primary, separately for each role (specification section 5).
type arbiter struct {
	device uint64

	mu    sync.Mutex // held during each change of the primary, including its notifications
	roles map[roleKey]*role
	list  atomic.Pointer[[]*role] // the values of roles, for code that handles packets
}

func (a *arbiter) init(device uint64) {
	a.device = device
	a.roles = map[roleKey]*role{}
	a.role(roleKey{}) // The default role always exists.
}

// role returns the role with this key. It creates the role if it does not exist. The caller holds
// a.mu or initializes a.
func (a *arbiter) role(k roleKey) *role {
	r := a.roles[k]
	if r == nil {
		r = &role{key: k, streams: map[*stream]bool{}}
		a.roles[k] = r
		all := make([]*role, 0, len(a.roles))
		for _, r := range a.roles {
			all = append(all, r)
		}
		a.list.Store(&all)
	}
	return r
}

func compareID(x, y *p4v1.Uint128) int {
	return cmp.Or(cmp.Compare(x.GetHigh(), y.GetHigh()), cmp.Compare(x.GetLow(), y.GetLow()))
}

// update handles a MasterArbitrationUpdate (section 5.3). If it returns an error, the stream ends.
// drain waits for the writes that have already begun.
func (a *arbiter) update(st *stream, m *p4v1.MasterArbitrationUpdate, drain func()) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := keyOfRole(m.GetRole().GetName(), roleID(m.GetRole()))
	r := st.role
	if r == nil {
		if m.DeviceId != a.device {
			return status.Errorf(codes.NotFound, "there is no device %d here; this is device %d",
				m.DeviceId, a.device)
		}
		r = a.role(k)
	} else {
		if m.DeviceId != a.device {
			return status.Errorf(codes.FailedPrecondition,
				"this stream is for device %d; open another one for device %d", a.device,
				m.DeviceId)
		}
		if r.key != k {
			return status.Error(codes.FailedPrecondition,
				"a stream keeps its role; open another one for another role")
		}
	}
	if m.GetRole().GetConfig() != nil {
		return status.Errorf(codes.InvalidArgument,
			"role.config of type %q is not known here: every role has full pipeline access",
			m.Role.Config.TypeUrl)
	}
	if m.ElectionId != nil {
		for other := range r.streams {
			if other != st && other.election != nil &&
				compareID(other.election, m.ElectionId) == 0 {
				return status.Errorf(codes.InvalidArgument,
					"election id {high: %d low: %d} is in use by another controller of this role",
					m.ElectionId.High, m.ElectionId.Low)
			}
		}
	}
	if st.role == nil {
		if len(r.streams) >= maxStreams {
			return status.Errorf(codes.ResourceExhausted,
				"there are %d controllers of this role already", maxStreams)
		}
		st.role = r
		r.streams[st] = true
	}
	st.election = proto.CloneOf(m.ElectionId)

	before := r.primary.Load()
	switch {
	case m.ElectionId != nil && (r.highest == nil || compareID(m.ElectionId, r.highest) >= 0):
		if before == nil {
			// Writes of a former primary may still be running, and must finish first.
			drain()
			r.highest = st.election
			r.primary.Store(&primary{st, st.election})
			r.notify(a.device)
			return nil
		}
		r.primary.Store(nil) // From here on, writes of the old primary are refused.
		r.highest = st.election
		for other := range r.streams {
			if other != st {
				other.control(r.message(a.device, codes.AlreadyExists))
			}
		}
		drain()
		r.primary.Store(&primary{st, st.election})
		st.control(r.message(a.device, codes.OK))
	case before != nil && before.stream == st: // the former primary stepped down
		r.primary.Store(nil)
		r.notify(a.device)
	case before != nil:
		st.control(r.message(a.device, codes.AlreadyExists))
	default:
		st.control(r.message(a.device, codes.NotFound))
	}
	return nil
}

// leave removes a stream that has ended.
func (a *arbiter) leave(st *stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := st.role
	if r == nil {
		return
	}
	delete(r.streams, st)
	if r.leads(st) {
		r.primary.Store(nil)
		r.notify(a.device)
	}
}

// notify informs every controller of the role which controller is primary.
func (r *role) notify(device uint64) {
	lead := r.primary.Load()
	for st := range r.streams {
		switch {
		case lead != nil && lead.stream == st:
			st.control(r.message(device, codes.OK))
		case lead != nil:
			st.control(r.message(device, codes.AlreadyExists))
		default:
			st.control(r.message(device, codes.NotFound))
		}
	}
}

// message returns the advisory message of section 5.4.
func (r *role) message(device uint64, code codes.Code) *p4v1.StreamMessageResponse {
	text := map[codes.Code]string{codes.OK: "you are the primary",
		codes.AlreadyExists: "you are a backup: there is a primary",
		codes.NotFound:      "you are a backup: there is no primary"}[code]
	m := &p4v1.MasterArbitrationUpdate{
		DeviceId: device, ElectionId: proto.CloneOf(r.highest),
		Status: &spb.Status{Code: int32(code), Message: text},
	}
	if r.key != (roleKey{}) {
		m.Role = &p4v1.Role{Name: r.key.name}
		setRoleID(m.Role, r.key.id)
	}
	return &p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Arbitration{
		Arbitration: m}}
}

// known returns the role with a key if a controller has ever requested the role, and otherwise nil.
// This is the first check of a write.
func (a *arbiter) known(k roleKey) *role {
	for _, r := range *a.list.Load() {
		if r.key == k {
			return r
		}
	}
	return nil
}

// isPrimary reports whether id is the election id of the role's primary.
func (r *role) isPrimary(id *p4v1.Uint128) bool {
	p := r.primary.Load()
	return p != nil && id != nil && compareID(id, p.election) == 0
}

// Role ids are deprecated in favour of names, but the specification still requires support for
// them.

//nolint:staticcheck // see above
func roleID(r *p4v1.Role) uint64 { return r.GetId() }

//nolint:staticcheck // see above
func setRoleID(r *p4v1.Role, id uint64) { r.Id = id }
