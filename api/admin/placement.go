package admin

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Placement shows which of etcd's keys the network serves, and why (docs/etcd.md). Keys are written
// as text: a backslash as \\, control characters and bytes that are not UTF-8 as \xNN.
type Placement struct {
	Prefix   string           `json:"prefix"`            // prefix of the gateways' and placement's keys in etcd
	Heat     PlacementHeat    `json:"heat"`              // rates of reads and writes of keys
	Problem  string           `json:"problem,omitempty"` // why placement decides nothing at present
	Chains   []PlacementChain `json:"chains"`            // the chains that keys can be placed in
	Placed   []PlacementKey   `json:"placed"`            // placed keys, the hottest first
	Others   []PlacementKey   `json:"others"`            // the hottest keys that are not placed, with the reasons
	UnderWay []PlacementMove  `json:"underWay"`          // moves that are decided and not yet carried out
	Recent   []PlacementMove  `json:"recent"`            // moves that were carried out or have failed, the latest first
	Rules    []PlacementRule  `json:"rules"`             // the choices of operators, and the defaults
	// the limits of placement, by name
	Limits map[string]any `json:"limits"`
}

// PlacementHeat describes the source of the rates, and the state of its last query.
type PlacementHeat struct {
	Prometheus string    `json:"prometheus"`     // the URL of Prometheus
	Window     string    `json:"window"`         // the time that rates are taken over
	Heard      time.Time `json:"heard,omitzero"` // when Prometheus last answered
	Keys       int       `json:"keys"`           // number of keys that the answer named
	// error of the last query; placement moves nothing while there is one
	Error string `json:"error,omitempty"`

	// The rates of all gateways together, by Prometheus. A field is left out if it is not known.

	// reads of single keys at all gateways
	ReadsPerSecond *float64 `json:"readsPerSecond,omitempty"`
	HitRatio       *float64 `json:"hitRatio,omitempty"` // fraction of single-key reads that the network answered
	// the median time of a read that the network answered
	NetworkMedianSeconds *float64 `json:"networkMedianSeconds,omitempty"`
	// the median time of a read that etcd answered
	EtcdMedianSeconds *float64 `json:"etcdMedianSeconds,omitempty"`
}

// PlacementChain is a chain as placement sees it.
type PlacementChain struct {
	Name  string `json:"name"`  // the name of the chain
	Ready bool   `json:"ready"` // whether every member serves
	Slots int    `json:"slots"` // slots that the chain may place keys in
	Free  int    `json:"free"`  // slots without a key
	// etcd keys; the rest of the slots in use are keys that are in the network for themselves
	Placed    int `json:"placed"`
	CellBytes int `json:"cellBytes"` // the size of a slot's value in bytes
}

// PlacementKey is one key and the reason for its place.
type PlacementKey struct {
	Key    string    `json:"key"`              // the key of etcd, as text
	Chain  string    `json:"chain,omitempty"`  // the chain in which it is placed
	KeyID  uint32    `json:"keyId,omitempty"`  // its KEY_ID in that chain
	Since  time.Time `json:"since,omitzero"`   // when it was placed
	Reads  *float64  `json:"reads,omitempty"`  // per second; left out if not known
	Writes *float64  `json:"writes,omitempty"` // per second; left out if not known
	Score  *float64  `json:"score,omitempty"`  // the hottest keys are those with the highest score
	Code   string    `json:"code"`             // the reason, for programs
	Reason string    `json:"reason"`           // the reason, for people
}

// PlacementMove is one placing or removal.
type PlacementMove struct {
	Time   time.Time `json:"time"`            // time of the decision
	Op     string    `json:"op"`              // "place" or "remove"
	Key    string    `json:"key"`             // the key of etcd, as text
	Chain  string    `json:"chain"`           // the name of the chain
	Code   string    `json:"code"`            // the reason, for programs
	Reason string    `json:"reason"`          // the reason, for people
	Error  string    `json:"error,omitempty"` // why it was not carried out
}

// PlacementRule is a choice of an operator about a key or all keys with a prefix.
type PlacementRule struct {
	Key     string `json:"key"`               // the key or the prefix, as text
	Prefix  bool   `json:"prefix,omitempty"`  // the rule is about all keys that begin with Key
	Choice  string `json:"choice"`            // "pin", "exclude", "include"; in a request also "unpin", "clear"
	Default bool   `json:"default,omitempty"` // the rule is a default: no operator has made a choice for the key
}

// PlacementEviction asks for a key to be taken out of the network.
type PlacementEviction struct {
	Key   string `json:"key"`             // the key of etcd, as text
	KeyID uint32 `json:"keyId,omitempty"` // KEY_ID of the placement to end; 0: the present one
	// Fault is "" or "slot-unreachable": a gateway cannot write the key, because its slot does not
	// answer; or "forged": its slot has a value that no gateway has written.
	Fault  string `json:"fault,omitempty"`
	Reason string `json:"reason"` // why, for people
}

// Evict makes placement remove a key from the network. It returns after the decision, before the
// key is removed. If the key is not placed, the error has CodeNotFound.
func (c *Client) Evict(ctx context.Context, e PlacementEviction) error {
	return c.do(ctx, http.MethodPost, "/v1/placement/evictions", e, nil)
}

// Placement returns the placed keys, and why they are placed.
func (c *Client) Placement(ctx context.Context) (*Placement, error) {
	out := new(Placement)
	return out, c.do(ctx, http.MethodGet, "/v1/placement", nil, out)
}

// WhyPlaced returns the reason why a key is placed or not placed.
func (c *Client) WhyPlaced(ctx context.Context, key string) (*PlacementKey, error) {
	out := new(PlacementKey)
	return out, c.do(ctx, http.MethodGet, "/v1/placement/why?key="+url.QueryEscape(key), nil, out)
}

// SetPlacementRule makes a choice for a key or prefix: "pin", "exclude" or "include"; "unpin"
// removes a pin, "clear" any choice. It returns the key's state under that choice (for a prefix:
// nil).
func (c *Client) SetPlacementRule(ctx context.Context, r PlacementRule) (*PlacementKey, error) {
	out := new(PlacementKey)
	if err := c.do(ctx, http.MethodPut, "/v1/placement/rules", r, out); err != nil {
		return nil, err
	}
	if r.Prefix {
		return nil, nil
	}
	return out, nil
}
