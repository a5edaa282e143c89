// Package reserved determines which keys in etcd belong to the project itself. These are the keys
// of the gateways (docs/etcd.md) and of the controllers (docs/operations.md). Clients of a gateway
// cannot read, write or watch them. If a client requests a range that includes reserved keys, the
// answer leaves them out.
package reserved

import (
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Open is the end of a Span that contains all keys from its first key on.
const Open = "\x00"

// Span is the set of keys in [Key, End), as in etcd's requests. An empty End selects only Key. The
// End Open selects all keys from Key on.
type Span struct{ Key, End string }

// Keys is the set of all keys that begin with one of some prefixes. The zero value is empty.
type Keys struct {
	prefixes []string // sorted; no prefix begins with another prefix
	ends     []string // the end of the range of keys with each prefix
}

// With returns the Keys for the given prefixes. It ignores empty prefixes.
func With(prefixes ...string) Keys {
	var k Keys
	sorted := slices.Clone(prefixes)
	slices.Sort(sorted)
	for _, p := range sorted {
		if p == "" || len(k.prefixes) > 0 && strings.HasPrefix(p, k.prefixes[len(k.prefixes)-1]) {
			continue
		}
		k.prefixes = append(k.prefixes, p)
		k.ends = append(k.ends, clientv3.GetPrefixRangeEnd(p))
	}
	return k
}

// Prefixes returns the prefixes in order. No prefix begins with another prefix.
func (k Keys) Prefixes() []string { return k.prefixes }

// Has reports whether a key is one of these keys.
func (k Keys) Has(key string) bool {
	return slices.ContainsFunc(k.prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

// Touches reports whether some of these keys are in [key, end). A span without a first key, which
// etcd refuses, touches no keys. Neither does a span that ends before it begins.
func (k Keys) Touches(key, end string) bool {
	switch {
	case key == "":
		return false
	case end == "":
		return k.Has(key)
	}
	for i, p := range k.prefixes {
		if before(key, k.ends[i]) && before(p, end) && before(key, end) {
			return true
		}
	}
	return false
}

// before reports whether a key is before an end.
func before(key, end string) bool { return end == Open || key < end }

// Without returns the parts of a span, in order, that contain none of these keys. If the span
// touches none of these keys, Without returns the span itself.
func (k Keys) Without(key, end string) (parts []Span) {
	if !k.Touches(key, end) {
		return []Span{{key, end}}
	}
	if end == "" {
		return nil
	}
	for i, p := range k.prefixes {
		if !before(key, k.ends[i]) {
			continue
		}
		if !before(p, end) {
			break
		}
		if key < p {
			parts = append(parts, Span{key, p})
		}
		if key = k.ends[i]; key == Open { // no keys come after this prefix
			return parts
		}
	}
	if before(key, end) {
		parts = append(parts, Span{key, end})
	}
	return parts
}

// Denied returns the error for a request that is only for reserved keys.
func (k Keys) Denied() error {
	return status.Error(codes.PermissionDenied, fmt.Sprintf("etcd-monitor: the keys under %s are NetCRAQ's own, and neither read nor changed through a gateway", strings.Join(k.prefixes, ", ")))
}
