package flowproc

import (
	"errors"
	"time"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/flow"
)

// maxAnswer is the maximum size of an answer, in bytes. It is enough for the rows that a flow may
// make, and their lengths.
const maxAnswer = 2 * flow.MaxRows

// request is a request to a process, encoded by gob.
type request struct {
	Query, State string
	Compile      bool
	Batch        string            // the name of the batch; empty if it has none
	Load         bool              // if set, Records is the batch; otherwise the process already has the batch
	Records      *records          // nil if there are no records
	Was          exactlyonce.Table // the current table, if there is a State
}

// records has the records of a batch. It concatenates all texts, because gob is slow with many
// small texts.
type records struct {
	Text []byte // the keys and values of all records, one after the other
	// for each record, the length of the key, and then the length of the value plus one, or 0 for a
	// deletion
	Lengths  []uint32
	Versions []uint64
}

// answer is the answer of a process to a request.
type answer struct {
	Kind    exactlyonce.Kind
	Error   string // empty if the request succeeded
	Missing bool   // the process does not have the batch
	Took    time.Duration
	Next    exactlyonce.Table
	Text    []byte // the keys and values of the rows, in the format of records.Text
	Lengths []uint32
}

func put(text *[]byte, lengths *[]uint32, key string, value []byte, deleted bool) {
	*text = append(append(*text, key...), value...)
	n := uint32(0)
	if !deleted {
		n = uint32(len(value)) + 1
	}
	*lengths = append(*lengths, uint32(len(key)), n)
}

var errWire = errors.New("the process for flows sent what is no answer")

// each calls got with each item that put has written. It validates the text, because it does not
// trust the process that wrote it.
func each(text []byte, lengths []uint32, got func(i int, key, value []byte, deleted bool)) error {
	if len(lengths)%2 != 0 {
		return errWire
	}
	for i := 0; i < len(lengths); i += 2 {
		k, v := uint64(lengths[i]), uint64(lengths[i+1])
		deleted := v == 0
		if !deleted {
			v--
		}
		if k+v > uint64(len(text)) {
			return errWire
		}
		got(i/2, text[:k:k], text[k:k+v:k+v], deleted)
		text = text[k+v:]
	}
	return nil
}

func toRecords(all []endpoint.Record) *records {
	if len(all) == 0 {
		return nil
	}
	size := 0
	for _, r := range all {
		size += len(r.Key) + len(r.Value)
	}
	out := &records{Text: make([]byte, 0, size), Lengths: make([]uint32, 0, 2*len(all)),
		Versions: make([]uint64, 0, len(all))}
	for _, r := range all {
		put(&out.Text, &out.Lengths, r.Key, r.Value, r.Deleted)
		out.Versions = append(out.Versions, r.Version)
	}
	return out
}

func (r *records) all() ([]endpoint.Record, error) {
	if r == nil {
		return nil, nil
	}
	if len(r.Lengths) != 2*len(r.Versions) {
		return nil, errWire
	}
	out := make([]endpoint.Record, len(r.Versions))
	return out, each(r.Text, r.Lengths, func(i int, key, value []byte, deleted bool) {
		out[i] = endpoint.Record{Key: string(key), Value: value, Deleted: deleted, Version: r.Versions[i]}
	})
}

func (a *answer) set(rows []endpoint.Row) {
	for _, r := range rows {
		put(&a.Text, &a.Lengths, r.Key, r.Value, r.Deleted)
	}
}

func (a *answer) rows() (out []endpoint.Row, err error) {
	if n := len(a.Lengths) / 2; n > flow.MaxRows/flow.RowBytes || len(a.Next) > flow.MaxTable {
		return nil, errWire
	} else if n > 0 {
		out = make([]endpoint.Row, n)
	}
	return out, each(a.Text, a.Lengths, func(i int, key, value []byte, deleted bool) {
		if out[i] = (endpoint.Row{Key: string(key), Value: value, Deleted: deleted}); deleted {
			out[i].Value = nil
		}
	})
}
