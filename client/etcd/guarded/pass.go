package guarded

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client/etcd/placement"
)

// Passage is a request that can be passed to etcd as bytes, because it touches no placed and no
// reserved keys. A passed write is executed only if etcd confirms that the directory has not
// changed (the fence).
type Passage struct {
	// Method and Request are sent to etcd. If Method is "", the client's method is used. The pieces
	// of Request form one message.
	Method  string
	Request [][]byte
	// See must be called with the beginning of etcd's answer before the client gets the answer. The
	// first 64 bytes are enough.
	See func(head []byte)
	// Answer converts etcd's answer to the client's answer. If Answer is nil, the two are the same.
	// If ok is false, nothing was executed and the Server must serve the request.
	Answer func(message []byte) (answer [][]byte, ok bool)
	// Refused reports whether an error of etcd is about the parts that Pass added to the request.
	// If so, nothing was executed and the Server must serve the request.
	Refused func(code codes.Code, message string) bool

	// Exactly one of the following fields is set. It tells what kind of request this is.
	Range       *pb.RangeRequest
	Put         []byte // the key of a put
	DeleteRange *pb.DeleteRangeRequest
	Txn         *pb.TxnRequest
}

// These are methods of etcd's key-value service.
const (
	rangeMethod  = "/etcdserverpb.KV/Range"
	putMethod    = "/etcdserverpb.KV/Put"
	deleteMethod = "/etcdserverpb.KV/DeleteRange"
	txnMethod    = "/etcdserverpb.KV/Txn"
)

// These are numbers of fields in etcd's messages (rpc.proto).
const (
	putKeyField      protowire.Number = 1 // the field key of PutRequest
	compareField     protowire.Number = 1 // the field compare of TxnRequest
	successField     protowire.Number = 2 // the field success of TxnRequest
	headerField      protowire.Number = 1 // the field header of all answers
	succeededField   protowire.Number = 2 // the field succeeded of TxnResponse
	responsesField   protowire.Number = 3 // the field responses of TxnResponse
	putOpField       protowire.Number = 2 // a field of RequestOp and ResponseOp, like the next two
	deleteOpField    protowire.Number = 3
	txnOpField       protowire.Number = 4
	mostFieldsOfAPut                  = 6 // number of fields of PutRequest
)

// Pass returns the Passage that sends a request's bytes to etcd. If it returns nil, the caller must
// use the Server's methods, which also report errors in the request. The bytes must not change
// afterwards.
func (s *Server) Pass(method string, request []byte) *Passage {
	switch method {
	case rangeMethod:
		return s.passRange(request)
	case putMethod:
		key, ok := keyOfPut(request)
		if !ok || len(key) == 0 || s.reserved.Has(string(key)) {
			return nil
		}
		if s.MaxRequestBytes > 0 && len(request)+MoreRequestBytes/8 > s.MaxRequestBytes {
			// A request of this size may be too large. The Server computes the size exactly.
			return nil
		}
		p := s.passWrite(putOpField, request, []span{{Key: string(key)}})
		if p != nil {
			p.Put = key
		}
		return p
	case deleteMethod:
		r := new(pb.DeleteRangeRequest)
		if r.Unmarshal(request) != nil {
			return nil
		}
		op := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
		p := s.passPlanned(deleteOpField, request, op)
		if p != nil {
			p.DeleteRange = r
		}
		return p
	case txnMethod:
		r := new(pb.TxnRequest)
		if r.Unmarshal(request) != nil {
			return nil
		}
		p := s.passPlanned(txnOpField, request, txnOp(r))
		if p != nil {
			p.Txn = r
		}
		return p
	}
	return nil
}

func (s *Server) passRange(request []byte) *Passage {
	r := new(pb.RangeRequest)
	if r.Unmarshal(request) != nil || s.reserved.Touches(string(r.Key), string(r.RangeEnd)) {
		return nil
	}
	reason := reasonRequest
	if eligible(r) {
		if _, placed := s.Directory.Lookup(string(r.Key)); placed {
			return nil
		}
		reason = reasonPlace
	}
	s.Observer.Forwarded(reason)
	return &Passage{Request: [][]byte{request}, See: s.sawHead, Range: r}
}

// passPlanned passes a deletion or a transaction, if etcd can get it unchanged.
func (s *Server) passPlanned(field protowire.Number, request []byte, op *pb.RequestOp) *Passage {
	w, err := s.plan(op)
	if err != nil || w.op != op || w.back != nil {
		return nil
	}
	if len(w.spans) > 0 {
		return s.passWrite(field, request, w.spans)
	}
	if field != txnOpField {
		return nil
	}
	return &Passage{Request: [][]byte{request}, See: s.sawHead} // the request only reads
}

// passWrite handles a write that touches no placed key. It wraps the bytes of the write in a
// transaction that checks the fence.
func (s *Server) passWrite(field protowire.Number, request []byte, spans []span) *Passage {
	// Revision is called before the directory is searched, so that all changes up to the revision
	// are known.
	known := s.Directory.Revision()
	for _, sp := range spans {
		if len(s.Directory.LookupRange(sp.Key, sp.End)) > 0 {
			return nil
		}
	}
	h := boundingRange(spans)
	fence, err := placement.Fence(s.Prefix, h.Key, h.End, known).Marshal()
	if err != nil {
		return nil
	}
	// The message is TxnRequest{Compare: fence, Success: RequestOp{request}}.
	op := protowire.AppendTag(nil, field, protowire.BytesType)
	op = protowire.AppendVarint(op, uint64(len(request)))
	head := make([]byte, 0, len(fence)+len(op)+24)
	head = protowire.AppendTag(head, compareField, protowire.BytesType)
	head = protowire.AppendBytes(head, fence)
	head = protowire.AppendTag(head, successField, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(op)+len(request)))
	head = append(head, op...)
	return &Passage{
		Method: txnMethod, Request: [][]byte{head, request},
		Answer: func(message []byte) ([][]byte, bool) { return s.unwrapped(field, message) },
		Refused: func(code codes.Code, message string) bool {
			return field == txnOpField && refusedForMany(code, message)
		},
	}
}

// refusedForMany reports whether etcd says that a transaction has too many operations. The fence
// adds one operation. Server.commit can regroup the operations.
func refusedForMany(code codes.Code, message string) bool {
	many := status.Convert(rpctypes.ErrGRPCTooManyOps)
	return code == many.Code() && message == many.Message()
}

// unwrapped converts etcd's answer to a request that was wrapped in a transaction to the answer for
// the request itself. The transaction's header replaces the request's own header, which is empty.
func (s *Server) unwrapped(field protowire.Number, message []byte) (answer [][]byte, ok bool) {
	var header, response []byte
	succeeded := false
	if !fields(message, func(num protowire.Number, typ protowire.Type, value []byte, number uint64) {
		switch {
		case num == headerField && typ == protowire.BytesType:
			header = value
		case num == succeededField && typ == protowire.VarintType:
			succeeded = number != 0
		case num == responsesField && typ == protowire.BytesType:
			response = value
		}
	}) {
		return nil, false
	}
	s.sawHeader(header)
	if !succeeded {
		return nil, false
	}
	var inner []byte
	if !fields(response, func(num protowire.Number, typ protowire.Type, value []byte, _ uint64) {
		if num == field && typ == protowire.BytesType {
			inner = value
		}
	}) {
		return nil, false
	}
	head := protowire.AppendTag(make([]byte, 0, len(header)+8), headerField, protowire.BytesType)
	answer = [][]byte{protowire.AppendBytes(head, header)}
	for len(inner) > 0 {
		num, _, n := protowire.ConsumeField(inner)
		if n < 0 {
			return nil, false
		}
		if num != headerField {
			answer = append(answer, inner[:n])
		}
		inner = inner[n:]
	}
	return answer, true
}

// fields calls each for every field of a message. It reports whether the bytes are a valid message.
func fields(message []byte, each func(protowire.Number, protowire.Type, []byte, uint64)) bool {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		size := protowire.ConsumeFieldValue(num, typ, message)
		if size < 0 {
			return false
		}
		var value []byte
		var number uint64
		switch typ {
		case protowire.BytesType:
			value, _ = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			number, _ = protowire.ConsumeVarint(message)
		}
		each(num, typ, value, number)
		message = message[size:]
	}
	return true
}

// keyOfPut returns the key of a PutRequest. ok is false if the key is ambiguous: if a field is
// repeated, etcd takes the last one, and if there are unknown fields, etcd may know these fields.
func keyOfPut(request []byte) (key []byte, ok bool) {
	var there [mostFieldsOfAPut + 1]bool
	ok = fields(request, func(num protowire.Number, typ protowire.Type, value []byte, _ uint64) {
		if num > mostFieldsOfAPut || there[num] || num == putKeyField && typ != protowire.BytesType {
			there[0] = true
			return
		}
		there[num] = true
		if num == putKeyField {
			key = value
		}
	})
	return key, ok && !there[0]
}

// sawHead records the header at the beginning of an answer.
func (s *Server) sawHead(head []byte) {
	num, typ, n := protowire.ConsumeTag(head)
	if n < 0 || num != headerField || typ != protowire.BytesType {
		return
	}
	if header, size := protowire.ConsumeBytes(head[n:]); size >= 0 {
		s.sawHeader(header)
	}
}

func (s *Server) sawHeader(header []byte) {
	h := new(pb.ResponseHeader)
	if h.Unmarshal(header) == nil {
		s.saw(h)
	}
}
