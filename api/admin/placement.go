package admin

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Placement is which of etcd's keys are served by the network, and why (docs/etcd.md). Keys are
// written as text: a backslash as \\, control characters and bytes that are not UTF-8 as \xNN.
type Placement struct {
	Prefix   string           `json:"prefix"` // under which its state is in etcd
	Heat     PlacementHeat    `json:"heat"`
	Problem  string           `json:"problem,omitempty"` // why nothing is decided now
	Chains   []PlacementChain `json:"chains"`
	Placed   []PlacementKey   `json:"placed"`   // the hottest first
	Others   []PlacementKey   `json:"others"`   // the hottest of those that are not placed, with the reasons
	UnderWay []PlacementMove  `json:"underWay"` // decided, not yet carried out
	Recent   []PlacementMove  `json:"recent"`   // the latest first
	Rules    []PlacementRule  `json:"rules"`
	Limits   map[string]any   `json:"limits"`
}

// PlacementHeat is where heat comes from, and how that goes.
type PlacementHeat struct {
	Prometheus string    `json:"prometheus"`
	Window     string    `json:"window"` // that rates are taken over
	Heard      time.Time `json:"heard,omitzero"`
	Keys       int       `json:"keys"`            // that it named
	Error      string    `json:"error,omitempty"` // of the last question; placement moves nothing meanwhile

	// What all gateways together do, by Prometheus; nil: not known.
	ReadsPerSecond       *float64 `json:"readsPerSecond,omitempty"`
	HitRatio             *float64 `json:"hitRatio,omitempty"` // reads of single keys that the network answered
	NetworkMedianSeconds *float64 `json:"networkMedianSeconds,omitempty"`
	EtcdMedianSeconds    *float64 `json:"etcdMedianSeconds,omitempty"`
}

// PlacementChain is what a chain has for placement.
type PlacementChain struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Slots int    `json:"slots"`
	Free  int    `json:"free"`
	// etcd keys; the rest of the slots in use are keys that are in the network for themselves
	Placed    int `json:"placed"`
	CellBytes int `json:"cellBytes"`
}

// PlacementKey is one key and the reason why it is where it is.
type PlacementKey struct {
	Key    string    `json:"key"`
	Chain  string    `json:"chain,omitempty"` // where it is placed
	KeyID  uint32    `json:"keyId,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Reads  *float64  `json:"reads,omitempty"` // per second; nil: not known
	Writes *float64  `json:"writes,omitempty"`
	Score  *float64  `json:"score,omitempty"`
	Code   string    `json:"code"`
	Reason string    `json:"reason"`
}

// PlacementMove is one placing or removal.
type PlacementMove struct {
	Time   time.Time `json:"time"`
	Op     string    `json:"op"` // "place" or "remove"
	Key    string    `json:"key"`
	Chain  string    `json:"chain"`
	Code   string    `json:"code"`
	Reason string    `json:"reason"`
	Error  string    `json:"error,omitempty"` // why it was not carried out
}

// PlacementRule is a choice of an operator about a key or all keys with a prefix.
type PlacementRule struct {
	Key     string `json:"key"`
	Prefix  bool   `json:"prefix,omitempty"`
	Choice  string `json:"choice"`            // "pin", "exclude" or "include"
	Default bool   `json:"default,omitempty"` // nobody has chosen it
}

// PlacementEviction asks for a key to be taken out of the network.
type PlacementEviction struct {
	Key   string `json:"key"`
	KeyID uint32 `json:"keyId,omitempty"` // the placement that is meant; 0: whichever there is
	// Fault is "" or "slot-unreachable": a gateway cannot write the key, because its slot does not
	// answer; or "forged": its slot has what no gateway has written.
	Fault  string `json:"fault,omitempty"`
	Reason string `json:"reason"`
}

// Evict has a key taken out of the network. It returns when that is decided, not when it is done. A
// key that is not placed (any more) is CodeNotFound.
func (c *Client) Evict(ctx context.Context, e PlacementEviction) error {
	return c.do(ctx, http.MethodPost, "/v1/placement/evictions", e, nil)
}

// Placement shows what is placed and why.
func (c *Client) Placement(ctx context.Context) (*Placement, error) {
	out := new(Placement)
	return out, c.do(ctx, http.MethodGet, "/v1/placement", nil, out)
}

// WhyPlaced says why a key is placed, or is not.
func (c *Client) WhyPlaced(ctx context.Context, key string) (*PlacementKey, error) {
	out := new(PlacementKey)
	return out, c.do(ctx, http.MethodGet, "/v1/placement/why?key="+url.QueryEscape(key), nil, out)
}

// SetPlacementRule makes a choice: "pin", "exclude" or "include"; "unpin" takes a pin back, "clear"
// any choice. It answers with what holds for the key then (a prefix: with nil).
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
