package world

import (
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// store stands for etcd or a file, and survives controllers. It knows the leader, and accepts
// records only from the leader. It writes and reads its contents as the shipped store of its kind
// does, so it loses whatever the shipped store would lose.
type store struct {
	w      *World
	etcd   map[string]string // the keys in etcd; nil if the store is a file
	Record *chain.Record     // the record is replaced as a whole, and never modified
	leader uint64            // the election id of the controller that started last
	Dir    keyspace.Snapshot
	// Renamed is a saved directory whose file is renamed, but whose folder is not synced yet. It is
	// nil if there is none.
	Renamed *savedDirectory
}

// savedDirectory is a directory that is being saved, with the moves that have ended in it. When the
// directory is durable, each of these moves is reported.
type savedDirectory struct {
	keyspace.Snapshot
	finished []*mover
}

// settle syncs the folder, which makes a renamed directory durable.
func (s *store) settle() {
	if r := s.Renamed; r != nil {
		s.Renamed = nil
		s.setDirectory(r.Snapshot)
		for _, m := range r.finished {
			m.durable()
		}
	}
}

// SetRecord stores a record.
func (s *store) SetRecord(r *chain.Record)          { s.keep(r, s.Dir) }
func (s *store) setDirectory(dir keyspace.Snapshot) { s.keep(s.Record, dir) }

// keep writes a state in the store's format, and reads it back.
func (s *store) keep(record *chain.Record, dir keyspace.Snapshot) {
	state := &saved.State{Version: saved.Version, Directory: dir, Chains: map[string]chain.Record{}}
	if record != nil {
		state.Chains["main"] = *record
	}
	var err error
	if s.etcd == nil {
		var m saved.FileImage
		m, err = saved.NewFileImage(state)
		Must(err)
		state, err = m.State()
	} else {
		state, err = s.viaEtcd(state)
	}
	Must(err)
	if record != nil {
		r := state.Chains["main"]
		s.Record = &r
	}
	if s.Dir = state.Directory; s.w.Without.Floor {
		s.Dir.Floor = 0
	}
	s.w.noteOffsets(s.Dir)
}

// transactionSize is so small that etcd stores a state in several transactions.
const transactionSize = 5

func (s *store) viaEtcd(state *saved.State) (*saved.State, error) {
	m, err := etcdstore.NewImage(s.etcd)
	if err != nil {
		return nil, err
	}
	transactions, err := m.Transactions(state, int64(s.leader), transactionSize)
	if err != nil {
		return nil, err
	}
	for _, changes := range transactions {
		for _, c := range changes {
			if delete(s.etcd, c.Name); !c.Delete {
				s.etcd[c.Name] = c.Value
			}
		}
	}
	if m, err = etcdstore.NewImage(s.etcd); err != nil {
		return nil, err
	}
	return m.State()
}

// noteOffsets notes the recorded offsets of keys, which lookups of a name return.
func (w *World) noteOffsets(dir keyspace.Snapshot) {
	for _, k := range dir.Keys {
		if k.State == keyspace.Placed && k.Alias == 0 && k.Name == k.FinalName() {
			w.Offsets[k.ID] = k.Offset
		}
	}
}
