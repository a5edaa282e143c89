package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// DefaultPrefix is the default prefix of the keys in etcd that belong to gateways and placement.
const DefaultPrefix = "/netcraq/gateway/"

// MaxKey is the length in bytes of the longest key that can be placed.
const MaxKey = 4096

// ErrInvalid means that the entry or the key is not valid.
var ErrInvalid = errors.New("invalid placement")

// Entry is the placement of one key.
type Entry struct {
	ID    uint32 // the KEY_ID of the key (wire.Key)
	Chain string // the name of the chain of this KEY_ID
	// Version is the slot's version (wire.Version) after placement created the slot with the
	// content slotcodec.Unsealed. 0 means that an earlier program version wrote the entry; gateways
	// then trust nothing in the slot.
	Version uint64
	Mod     int64 // the mod revision of the entry in etcd, which identifies this placement
}

// record is the JSON form of an Entry in etcd.
type record struct {
	ID      uint32 `json:"id"`
	Chain   string `json:"chain"`
	Version uint64 `json:"version,string,omitempty"`
}

func (e Entry) marshal() string {
	b, err := json.Marshal(record{ID: e.ID, Chain: e.Chain, Version: e.Version})
	if err != nil {
		panic(err) // this cannot fail, because the record has only numbers and a string
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

// Range returns the range of etcd keys that holds the placements of the keys in [key, end). key and
// end are as in etcd's requests. An empty end selects only the key itself. An end of one zero byte
// selects all keys from key on.
func Range(prefix, key, end string) (string, string) {
	switch end {
	case "":
		return Name(prefix, key), ""
	case "\x00":
		return Name(prefix, key), clientv3.GetPrefixRangeEnd(Name(prefix, ""))
	}
	return Name(prefix, key), Name(prefix, end)
}

// Fence returns the condition that no placement in the range [key, end) is newer than revision. If
// the condition holds, a gateway that has the directory as of revision knows which of these keys
// are placed. Some keys may have been removed since. Treating those as placed does no harm.
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
