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
// The agent reports a failure by an HTTP status of 400 or more and an [Error]. The error's code is
// defined by the CNI specification (1.1, section "Error") or by this package. The path has the
// protocol's version. An agent that does not know the version answers 404, and Client reports which
// of the two programs is too old.
package agentapi

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"
)

// Version is the protocol's version. Changes within a version only add fields.
const Version = 1

// DefaultSocket is the path of the agent's socket.
const DefaultSocket = "/run/netcraq/agent.sock"

// Error codes. The CNI specification defines those up to 51.
const (
	CodeUnknownContainer     = 3
	CodeInvalidEnvironment   = 4
	CodeIO                   = 5
	CodeDecoding             = 6
	CodeInvalidConfig        = 7
	CodeInvalidNamespace     = 8
	CodeTryAgain             = 11
	CodeUnavailable          = 50 // an ADD would currently fail
	CodeLimited              = 51 // an ADD would currently fail, and existing attachments may lack connectivity
	CodeFailed               = 100
	CodeExists               = 101 // the container already has the interface
	CodeNotAsItWas           = 102 // CHECK found a difference
	CodeWrongProtocolVersion = 103
)

// Error is a failure in the form that CNI uses.
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

// Errorf makes an Error with a formatted message.
func Errorf(code uint, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Attachment identifies an attachment as the CNI specification defines it: an interface of a
// container in a network.
type Attachment struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerId"`
	IfName      string `json:"ifName"`
}

func (a Attachment) String() string { return a.ContainerID + " " + a.IfName + " in " + a.Network }

// HostPrefix is the prefix of the names of the nodes' ends.
const HostPrefix = "ncq"

// HostName returns the name of the node's end of the attachment. It is the prefix and 55 bits of a
// hash of the attachment's names, because interface names have at most 15 characters.
func (a Attachment) HostName() string {
	sum := sha256.Sum256([]byte(a.Network + "\x00" + a.ContainerID + "\x00" + a.IfName))
	return HostPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:11])
}

// Address is one address of the interface, with the prefix length and the gateway of its network.
// If there is no gateway, the agent uses a gateway address of its own.
type Address struct {
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

// Route is a route of the container. If it has no gateway, it uses the gateway of the first address
// of its family. Routes whose scope is link or host do not need a gateway.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	MTU         int          `json:"mtu,omitempty"`      // in bytes
	AdvMSS      int          `json:"advmss,omitempty"`   // in bytes
	Priority    int          `json:"priority,omitempty"` // metric of the route
	Table       int          `json:"table,omitempty"`    // routing table; 0 means the main table
	Scope       int          `json:"scope,omitempty"`    // as in rtnetlink(7): 253 is the link scope
}

// Pod names the Kubernetes pod of the container, as the runtime reports it (CNI_ARGS). It is empty
// if the runtime names no pod.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Attach requests an attachment: an interface for a container.
type Attach struct {
	Attachment
	Pod       Pod       `json:"pod,omitzero"`
	Namespace string    `json:"namespace"`     // path of the container's network namespace
	MTU       int       `json:"mtu,omitempty"` // in bytes; 0 means the agent's default
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

// Attached is the agent's answer to Attach.
type Attached struct {
	Host      Interface `json:"host"`
	Container Interface `json:"container"`
	Addresses []Address `json:"addresses"` // the container's addresses, with their gateways
}

// Check requests a check that an attachment is unchanged. The fields are those of ADD's CNI result,
// which a later plugin of the list may have changed. The container must match these fields.
type Check struct {
	Attachment
	Namespace string    `json:"namespace"`
	Host      Interface `json:"host"` // fields that are "" or 0 mean the values that ADD has set
	Container Interface `json:"container"`
	Addresses []Address `json:"addresses"`
	Routes    []Route   `json:"routes"`
}

// Collect requests the removal of those attachments to a network that are not in Valid.
type Collect struct {
	Network string       `json:"network"`
	Valid   []Attachment `json:"valid"` // the field Network of these may be empty
}

// Collected is the answer to Collect. It lists the attachments that were removed.
type Collected struct {
	Removed []Attachment `json:"removed"`
}

// Status reports whether the agent can attach containers.
type Status struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // reason why the agent cannot attach containers
}

// States of an attachment in a Record.
const (
	Adding = "adding" // Adding means that the attachment is not finished. The agent undoes it when it starts.
	Ready  = "ready"
)

// Record is the agent's record of an attachment, on disk and in answers.
type Record struct {
	Attachment
	// Chained reports whether another plugin made the interfaces. The agent has then only added a
	// port and filters, and removes only these.
	Chained bool `json:"chained,omitempty"`
	// Index is the index of the node's interface if another plugin made it. The name is not enough,
	// because names may be reused.
	Index     int       `json:"index,omitempty"`
	Pod       Pod       `json:"pod,omitzero"`
	State     string    `json:"state"`
	Namespace string    `json:"namespace"`
	Port      uint32    `json:"port"` // port number at the switch
	Host      Interface `json:"host"`
	Container Interface `json:"container"`
	Addresses []Address `json:"addresses"`
	Routes    []Route   `json:"routes,omitempty"`
}
