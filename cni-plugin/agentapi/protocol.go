// Package agentapi is the protocol between the CNI plugin and the node agent: HTTP with JSON over a
// Unix socket that only root can open.
//
//	POST /v1/attach   Attach            give a container an interface at the node's switch    Attached
//	POST /v1/chain    Chain             make an interface that another plugin made a port     {}
//	POST /v1/detach   Attachment        remove either attachment; a missing one is no error   {}
//	POST /v1/check    Check             is the attachment as it was made?                     {}
//	POST /v1/gc       Collect           remove a network's attachments that are not listed    Collected
//	GET  /v1/status   -                 can the agent attach containers?                      Status
//	GET  /v1/attachments  -             what is attached now, for people and controllers      []Record
//
// A failure is an HTTP status of 400 or more with an [Error]. Its code is one of the CNI
// specification's (1.1, section "Error") or of this package. The version is in the path. An agent
// that does not know the version answers 404, and Client reports which of the two programs is too
// old.
package agentapi

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"
)

// Version is the protocol's version. A version only ever gains fields.
const Version = 1

// DefaultSocket is the path of the agent's socket.
const DefaultSocket = "/run/netcraq/agent.sock"

// Error codes. Those up to 51 are the CNI specification's.
const (
	CodeUnknownContainer     = 3
	CodeInvalidEnvironment   = 4
	CodeIO                   = 5
	CodeDecoding             = 6
	CodeInvalidConfig        = 7
	CodeInvalidNamespace     = 8
	CodeTryAgain             = 11
	CodeUnavailable          = 50 // ADD would fail
	CodeLimited              = 51 // ADD would fail, and existing attachments may lack connectivity
	CodeFailed               = 100
	CodeExists               = 101 // the container has the interface already
	CodeNotAsItWas           = 102 // CHECK found a difference
	CodeWrongProtocolVersion = 103
)

// Error is a failure as CNI reports it.
type Error struct {
	Code    uint   `json:"code"`
	Message string `json:"msg"`
	Details string `json:"details,omitempty"`
}

func (e *Error) Error() string {
	if e.Details == "" {
		return e.Message
	}
	return e.Message + ": " + e.Details
}

// Errorf makes an Error.
func Errorf(code uint, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Attachment identifies the specification's attachment: an interface of a container in a network.
type Attachment struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerId"`
	IfName      string `json:"ifName"`
}

func (a Attachment) String() string { return a.ContainerID + " " + a.IfName + " in " + a.Network }

// HostPrefix begins the names of the nodes' ends.
const HostPrefix = "ncq"

// HostName is the name of the node's end of the attachment: the prefix and 55 bits of a hash of the
// attachment's names. Names have at most 15 characters.
func (a Attachment) HostName() string {
	sum := sha256.Sum256([]byte(a.Network + "\x00" + a.ContainerID + "\x00" + a.IfName))
	return HostPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:11])
}

// Address is one address of the interface, with the network's prefix length, and the network's
// gateway. Without a gateway the agent uses a gateway address of its own.
type Address struct {
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

// Route is a route of the container. Without a gateway it uses the gateway of the first address of
// its family, unless its scope is link or host.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	MTU         int          `json:"mtu,omitempty"`      // bytes
	AdvMSS      int          `json:"advmss,omitempty"`   // bytes
	Priority    int          `json:"priority,omitempty"` // the metric
	Table       int          `json:"table,omitempty"`    // 0: the main one
	Scope       int          `json:"scope,omitempty"`    // as in rtnetlink(7): 253 is the link scope
}

// Pod is the container's Kubernetes pod, according to the runtime (CNI_ARGS). It is empty if the
// plugin's caller names no pod.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Attach asks for an attachment.
type Attach struct {
	Attachment
	Pod       Pod       `json:"pod,omitzero"`
	Namespace string    `json:"namespace"`     // path of the container's network namespace
	MTU       int       `json:"mtu,omitempty"` // bytes; 0: the agent's
	Addresses []Address `json:"addresses"`
	Routes    []Route   `json:"routes,omitempty"`
}

// Chain requests a port of the switch at an interface that the previous plugin in the list made.
// The agent finds the node's end of the interface itself, and uses no name from the previous
// result.
type Chain struct {
	Attachment
	Pod       Pod       `json:"pod,omitzero"`
	Namespace string    `json:"namespace"` // path of the container's network namespace
	Addresses []Address `json:"addresses"` // addresses that the interface must have
}

// Interface is one end of the interface pair.
type Interface struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	MTU  int    `json:"mtu"`
}

// Attached is the answer to Attach.
type Attached struct {
	Host      Interface `json:"host"`
	Container Interface `json:"container"`
	Addresses []Address `json:"addresses"` // the container's addresses, with their gateways
}

// Check requests a check that an attachment is unchanged. The fields are those of ADD's CNI result,
// which a later plugin of the list may have changed; the container must have them.
type Check struct {
	Attachment
	Namespace string    `json:"namespace"`
	Host      Interface `json:"host"` // fields that are "" or 0: as ADD made them
	Container Interface `json:"container"`
	Addresses []Address `json:"addresses"`
	Routes    []Route   `json:"routes"`
}

// Collect requests the removal of attachments to a network that are not among Valid.
type Collect struct {
	Network string       `json:"network"`
	Valid   []Attachment `json:"valid"` // their Network may be empty
}

// Collected lists the removed attachments.
type Collected struct {
	Removed []Attachment `json:"removed"`
}

// Status says whether the agent can attach containers.
type Status struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why not
}

// States of a Record.
const (
	Adding = "adding" // Adding: the attachment is not finished, and is undone when the agent starts
	Ready  = "ready"
)

// Record is the agent's record of an attachment, on disk and in answers.
type Record struct {
	Attachment
	// Chained is set if another plugin made the interfaces. The agent put only a port and the
	// filters there, and removes only these.
	Chained bool `json:"chained,omitempty"`
	// Index is the index of the node's interface if another plugin made it, because names may be
	// reused.
	Index     int       `json:"index,omitempty"`
	Pod       Pod       `json:"pod,omitzero"`
	State     string    `json:"state"`
	Namespace string    `json:"namespace"`
	Port      uint32    `json:"port"` // the switch's port
	Host      Interface `json:"host"`
	Container Interface `json:"container"`
	Addresses []Address `json:"addresses"`
	Routes    []Route   `json:"routes,omitempty"`
}
