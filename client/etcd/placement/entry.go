package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// DefaultPrefix is the prefix of gateways' and placement's own keys in etcd.
const DefaultPrefix = "/netcraq/gateway/"

// MaxKey is the longest key that can be placed, in bytes.
const MaxKey = 4096

// ErrInvalid: the entry or key is not valid.
var ErrInvalid = errors.New("invalid placement")

// Entry is the placement of one key.
type Entry struct {
	ID    uint32 // its KEY_ID, which names it in the network (wire.Key)
	Chain string // the name of the chain that ID belongs to
	// Version is the slot's version (wire.Version) after placement created it with
	// slotcodec.Unsealed in it. 0: the entry is from before this field existed, and gateways trust
	// nothing in the slot.
	Version uint64
	Mod     int64 // the mod revision of the entry in etcd, which names this placement
}

// record is the form of an Entry in etcd.
type record struct {
	ID      uint32 `json:"id"`
	Chain   string `json:"chain"`
	Version uint64 `json:"version,string,omitempty"`
}

func (e Entry) marshal() string {
	b, err := json.Marshal(record{ID: e.ID, Chain: e.Chain, Version: e.Version})
	if err != nil {
		panic(err) // cannot fail: the record has only numbers and a string
	}
	return string(b)
}

func parse(value []byte, mod int64) (Entry, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	e := Entry{ID: r.ID, Chain: r.Chain, Version: r.Version, Mod: mod}
	return e, e.check()
}

func (e Entry) check() error {
	if e.ID == 0 || e.Chain == "" {
		return fmt.Errorf("%w: KEY_ID 0x%08x, chain %q: both are needed", ErrInvalid, e.ID, e.Chain)
	}
	return nil
}

// Check returns why a key cannot be placed, or nil. prefix is the gateways' own prefix.
func Check(prefix, key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	case len(key) > MaxKey:
		return fmt.Errorf("%w: a key of %d bytes: %d is the most", ErrInvalid, len(key), MaxKey)
	case strings.HasPrefix(key, prefix):
		return fmt.Errorf("%w: %q is one of the gateways' own keys", ErrInvalid, key)
	}
	return nil
}

// Name returns the etcd key that holds the placement of a key.
func Name(prefix, key string) string { return prefix + "placed/" + key }

// Range returns the range of etcd keys that holds the placements of the keys in [key, end), where
// key and end are as in etcd's requests: no end is the one key, and an end of one zero byte is all
// keys from key on.
func Range(prefix, key, end string) (string, string) {
	switch end {
	case "":
		return Name(prefix, key), ""
	case "\x00":
		return Name(prefix, key), clientv3.GetPrefixRangeEnd(Name(prefix, ""))
	}
	return Name(prefix, key), Name(prefix, end)
}

// Fence returns the condition that no placement in the range [key, end) is newer than revision, so
// that a gateway which knows the directory as of revision knows which of these keys are placed.
// (Some may no longer be placed; treating those as placed does no harm.)
func Fence(prefix, key, end string, revision int64) *pb.Compare {
	from, to := Range(prefix, key, end)
	c := &pb.Compare{
		Target: pb.Compare_MOD, Result: pb.Compare_LESS, Key: []byte(from),
		TargetUnion: &pb.Compare_ModRevision{ModRevision: revision + 1},
	}
	if to != "" {
		c.RangeEnd = []byte(to)
	}
	return c
}
