package replay

import (
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"
)

// These are the kinds of requests in a trace.
const (
	Get    = "get" // a read of one key
	Range  = "range"
	Put    = "txn-put"
	Delete = "txn-delete"
	Grant  = "LeaseGrant"
	Status = "Status"
)

// Request is one row of a trace.
type Request struct {
	At    time.Duration // time since the beginning of the trace
	Kind  string
	Key   string
	Bytes int  // size of the request in bytes
	Lease bool // the log line mentions a lease
}

// ReadTrace reads a trace. A trace is CSV with the columns that experiments/data/README.md
// describes, in the order of time.
func ReadTrace(r io.Reader) ([]Request, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading the trace: %w", err)
	}
	if len(rows) == 0 || strings.Join(rows[0], ",") != "seconds,kind,key,request_bytes,response_bytes,response_count,etcd_time,ttl_lease" {
		return nil, fmt.Errorf("the trace does not begin with the columns of experiments/data/README.md")
	}
	var out []Request
	for i, row := range rows[1:] {
		seconds, err1 := strconv.ParseFloat(row[0], 64)
		size, err2 := strconv.Atoi(row[3])
		q := Request{At: time.Duration(seconds * float64(time.Second)), Kind: row[1], Key: row[2], Bytes: size,
			Lease: row[7] == "1"}
		if err1 != nil || err2 != nil || len(out) > 0 && q.At < out[len(out)-1].At {
			return nil, fmt.Errorf("line %d of the trace: the time, or the size, is no number, or the times go back", i+2)
		}
		switch q.Kind {
		case Get, Range, Put, Delete, Grant, Status:
		default:
			return nil, fmt.Errorf("line %d of the trace: no request of kind %q is known", i+2, q.Kind)
		}
		out = append(out, q)
	}
	return out, nil
}

// Export holds the keys and values of a cluster.
type Export struct {
	values map[string][]byte
	leased map[string]bool
	keys   []string // the names of the keys, sorted
}

// ReadExport reads the output of `etcdctl get --prefix / -w json`.
func ReadExport(r io.Reader) (*Export, error) {
	var in struct {
		Kvs []struct {
			Key, Value string
			Lease      int64
		}
	}
	if err := json.NewDecoder(r).Decode(&in); err != nil {
		return nil, fmt.Errorf("the export is not what etcdctl get --prefix / -w json prints: %w", err)
	}
	e := &Export{values: map[string][]byte{}, leased: map[string]bool{}}
	for i, kv := range in.Kvs {
		key, err1 := base64.StdEncoding.DecodeString(kv.Key)
		value, err2 := base64.StdEncoding.DecodeString(kv.Value)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("kvs[%d] of the export: the key or the value is not in base64", i)
		}
		e.values[string(key)], e.leased[string(key)] = value, kv.Lease != 0
		e.keys = append(e.keys, string(key))
	}
	sort.Strings(e.keys)
	return e, nil
}

// like returns the value of a key, or of a neighbouring key in the same directory.
func (e *Export) like(key string) []byte {
	if v, ok := e.values[key]; ok {
		return v
	}
	dir := key[:strings.LastIndexByte(key, '/')+1]
	i := sort.SearchStrings(e.keys, key)
	for _, j := range []int{i, i - 1} {
		if j >= 0 && j < len(e.keys) && strings.HasPrefix(e.keys[j], dir) {
			return e.values[e.keys[j]]
		}
	}
	return nil
}

// Value returns the value for the n-th write of a key. It consists of the value that like returns,
// or of about as many bytes as the request had, followed by the number n.
func (e *Export) Value(key string, n, requestBytes int) []byte {
	mark := []byte(fmt.Sprintf("\n#%d %s", n, key))
	base := e.like(key)
	if base == nil {
		base = []byte(strings.Repeat(key+"\n", max(0, requestBytes-len(mark)-len(key))/(len(key)+1)))
	}
	return append(append([]byte{}, base...), mark...)
}
