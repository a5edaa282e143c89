package world

import (
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// store is what survives controllers: etcd or a file. It knows who leads, and takes records from
// nobody else. What is in it was written as the shipped store of its kind writes it, and read as
// that reads it: what such a store forgets is forgotten here.
type store struct {
	w      *World
	etcd   map[string]string // its keys; nil: it is a file
	Record *chain.Record     // never changed, but replaced
	leader uint64            // the election id of the controller that was started last
	Dir    keyspace.Snapshot
	// Renamed has its name already, and the folder is not synced; nil: nothing.
	Renamed *savedDirectory
}

// savedDirectory is a directory that is being saved, with the moves that have come to their end in
// it: they are told when it is durable.
type savedDirectory struct {
	keyspace.Snapshot
	finished []*mover
}

// settle has the folder synced.
func (s *store) settle() {
	if r := s.Renamed; r != nil {
		s.Renamed = nil
		s.setDirectory(r.Snapshot)
		for _, m := range r.finished {
			m.durable()
		}
	}
}

// SetRecord makes a record the one that is on record.
func (s *store) SetRecord(r *chain.Record)          { s.keep(r, s.Dir) }
func (s *store) setDirectory(dir keyspace.Snapshot) { s.keep(s.Record, dir) }

// keep writes a state, and reads it.
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

// transactionSize makes etcd take a state in several transactions.
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

// noteOffsets keeps the offsets of keys as they are on record: whoever looks up a name is told
// them.
func (w *World) noteOffsets(dir keyspace.Snapshot) {
	for _, k := range dir.Keys {
		if k.State == keyspace.Placed && k.Alias == 0 && k.Name == k.FinalName() {
			w.Offsets[k.ID] = k.Offset
		}
	}
}
