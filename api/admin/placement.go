package admin

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Placement shows which of etcd's keys the network serves, and why (docs/etcd.md). Keys are written
// as text. A backslash is written as \\, and control characters and bytes that are not UTF-8 are
// written as \xNN.
type Placement struct {
	// prefix, in etcd, of the keys that gateways and placement use for themselves
	Prefix  string           `json:"prefix"`
	Heat    PlacementHeat    `json:"heat"`              // rates of reads and writes of keys
	Problem string           `json:"problem,omitempty"` // why placement makes no decisions at present
	Chains  []PlacementChain `json:"chains"`            // the chains in which keys can be placed
	Placed  []PlacementKey   `json:"placed"`            // placed keys, the hottest first
	// the hottest keys of etcd that are not placed, with the reasons
	Others   []PlacementKey  `json:"others"`
	UnderWay []PlacementMove `json:"underWay"` // moves that are decided but not carried out yet
	// moves that were carried out or have failed, the latest first
	Recent []PlacementMove `json:"recent"`
	Rules  []PlacementRule `json:"rules"` // the rules that operators made, and the default rules
	// the limits of placement, by name
	Limits map[string]any `json:"limits"`
}

// PlacementHeat describes the source of the read and write rates, and the state of the last query.
type PlacementHeat struct {
	Prometheus string    `json:"prometheus"`     // the URL of Prometheus
	Window     string    `json:"window"`         // the period over which the rates are averaged
	Heard      time.Time `json:"heard,omitzero"` // when Prometheus last answered
	Keys       int       `json:"keys"`           // number of keys in Prometheus's last answer
	// error of the last query; placement moves no keys while it is set
	Error string `json:"error,omitempty"`

	// The following rates are sums over all gateways, from Prometheus. A field is left out if its
	// rate is not known.

	// reads of single keys at all gateways, per second
	ReadsPerSecond *float64 `json:"readsPerSecond,omitempty"`
	HitRatio       *float64 `json:"hitRatio,omitempty"` // fraction of single-key reads that the network answered
	// the median time of a read that the network answered
	NetworkMedianSeconds *float64 `json:"networkMedianSeconds,omitempty"`
	// the median time of a read that etcd answered
	EtcdMedianSeconds *float64 `json:"etcdMedianSeconds,omitempty"`
}

// PlacementChain describes a chain that placement may use.
type PlacementChain struct {
	Name  string `json:"name"`  // the name of the chain
	Ready bool   `json:"ready"` // whether every member serves
	Slots int    `json:"slots"` // number of slots in which placement may place keys
	Free  int    `json:"free"`  // number of slots without a key
	// number of placed etcd keys; the other used slots hold keys that do not come from etcd
	Placed    int `json:"placed"`
	CellBytes int `json:"cellBytes"` // the size of a slot's value in bytes
}

// PlacementKey describes a key, and gives the reason why it is placed or not placed.
type PlacementKey struct {
	Key    string    `json:"key"`              // the name of the key in etcd, as text
	Chain  string    `json:"chain,omitempty"`  // the chain in which the key is placed
	KeyID  uint32    `json:"keyId,omitempty"`  // the key's KEY_ID in that chain
	Since  time.Time `json:"since,omitzero"`   // when the key was placed
	Reads  *float64  `json:"reads,omitempty"`  // reads per second; left out if not known
	Writes *float64  `json:"writes,omitempty"` // writes per second; left out if not known
	// measure of how hot the key is; the hottest keys have the highest scores
	Score  *float64 `json:"score,omitempty"`
	Code   string   `json:"code"`   // why the key is placed or not, as a code for programs
	Reason string   `json:"reason"` // why the key is placed or not, as text for people
}

// PlacementMove describes that one key is placed in the network or removed from it.
type PlacementMove struct {
	Time   time.Time `json:"time"`            // time of the decision
	Op     string    `json:"op"`              // "place" or "remove"
	Key    string    `json:"key"`             // the name of the key in etcd, as text
	Chain  string    `json:"chain"`           // the name of the chain
	Code   string    `json:"code"`            // why the key is moved, as a code for programs
	Reason string    `json:"reason"`          // why the key is moved, as text for people
	Error  string    `json:"error,omitempty"` // why the move was not carried out
}

// PlacementRule is a choice that an operator made for a key, or for all keys with a prefix.
type PlacementRule struct {
	Key    string `json:"key"`              // the key or the prefix, as text
	Prefix bool   `json:"prefix,omitempty"` // the rule applies to all keys that begin with Key
	Choice string `json:"choice"`           // "pin", "exclude", "include"; in a request also "unpin", "clear"
	// the rule is a default, because no operator has made a choice for the key
	Default bool `json:"default,omitempty"`
}

// PlacementEviction is a request to remove a key from the network.
type PlacementEviction struct {
	Key   string `json:"key"`             // the name of the key in etcd, as text
	KeyID uint32 `json:"keyId,omitempty"` // KEY_ID of the placement to end; 0 means the present placement
	// Fault says why the key must go. It is "slot-unreachable" if a gateway cannot write the key
	// because its slot does not answer. It is "forged" if the slot has a value that no gateway
	// wrote. Otherwise it is empty.
	Fault  string `json:"fault,omitempty"`
	Reason string `json:"reason"` // why the key must go, as text for people
}

// Evict makes placement remove a key from the network. It returns after the decision, before the
// key is removed. If the key is not placed, the error has CodeNotFound.
func (c *Client) Evict(ctx context.Context, e PlacementEviction) error {
	return c.do(ctx, http.MethodPost, "/v1/placement/evictions", e, nil)
}

// Placement returns the placed keys, and the reasons why they are placed.
func (c *Client) Placement(ctx context.Context) (*Placement, error) {
	out := new(Placement)
	return out, c.do(ctx, http.MethodGet, "/v1/placement", nil, out)
}

// WhyPlaced returns the reason why a key is placed or not placed.
func (c *Client) WhyPlaced(ctx context.Context, key string) (*PlacementKey, error) {
	out := new(PlacementKey)
	return out, c.do(ctx, http.MethodGet, "/v1/placement/why?key="+url.QueryEscape(key), nil, out)
}

// SetPlacementRule sets the rule of a key or prefix. The choices "pin", "exclude" and "include" set
// a rule, "unpin" removes a pin, and "clear" removes any rule. It returns the key's state under the
// new rule, or nil for a prefix.
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
