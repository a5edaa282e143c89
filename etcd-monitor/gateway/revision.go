package gateway

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/netcraq/netcraq/client/etcd/guardedshell"
)

// Newest is the newest revision of etcd's store that was seen in an answer.
type Newest = guardedshell.Newest

// ofEtcd reports whether a method belongs to a service whose answers begin with etcd's
// ResponseHeader.
func ofEtcd(method string) bool {
	return strings.HasPrefix(method, "/etcdserverpb.") || strings.HasPrefix(method, "/v3lockpb.") || strings.HasPrefix(method, "/v3electionpb.")
}

// Numbers of fields in etcd's messages (rpc.proto).
const (
	headerField   protowire.Number = 1 // a ResponseHeader in each response
	memberField   protowire.Number = 2 // a uint64 in ResponseHeader
	revisionField protowire.Number = 3 // an int64 in ResponseHeader
	keyField      protowire.Number = 1 // bytes in PutRequest
)

// revisionOf returns the revision in an answer's header, or 0 if the answer has none. It parses as
// little of the message as possible.
func revisionOf(message []byte) int64 {
	header, _ := field(message, headerField, protowire.BytesType)
	_, revision := field(header, revisionField, protowire.VarintType)
	return int64(revision)
}

// field finds the first field with a number and a type. It finds no field in a malformed message,
// because the receiver must report such a message.
func field(message []byte, want protowire.Number, as protowire.Type) (content []byte, number uint64) {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, 0
		}
		message = message[n:]
		if num == want && typ == as {
			switch as {
			case protowire.BytesType:
				content, _ = protowire.ConsumeBytes(message)
			case protowire.VarintType:
				number, _ = protowire.ConsumeVarint(message)
			}
			return content, number
		}
		if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
			return nil, 0
		}
		message = message[n:]
	}
	return nil, 0
}
