package gateway

import (
	"path"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// The kinds of requests of the key-value service that are told apart in metrics. Other methods go
// by their names.
const (
	kindGet         = "get" // a Range of one key
	kindRange       = "range"
	kindPut         = "put"
	kindDelete      = "delete" // of one key
	kindDeleteRange = "delete_range"
	kindTxn         = "txn"
	kindCompact     = "compact"
)

// look counts the keys of a request that is passed on as bytes, and says of which kind it is.
func (g *Gateway) look(method string, request []byte) string {
	switch method {
	case "/etcdserverpb.KV/Range":
		var r pb.RangeRequest
		if r.Unmarshal(request) != nil {
			return kindRange // etcd will say what is wrong with it
		}
		kind := g.lookRange(&r)
		if kind == kindGet {
			g.metrics.Forwarded("off")
		}
		return kind
	case "/etcdserverpb.KV/Put":
		key, _ := field(request, keyField, protowire.BytesType) // and not the value, which may be large
		g.countWrite(key)
		return kindPut
	case "/etcdserverpb.KV/DeleteRange":
		var r pb.DeleteRangeRequest
		if r.Unmarshal(request) != nil {
			return kindDeleteRange
		}
		return g.lookDelete(&r)
	case "/etcdserverpb.KV/Txn":
		var r pb.TxnRequest
		if r.Unmarshal(request) == nil {
			g.lookTxn(&r)
		}
		return kindTxn
	case "/etcdserverpb.KV/Compact":
		return kindCompact
	}
	return path.Base(method)
}

// lookRange counts a read of a key, if it is one that a slot in the network could answer: of one
// key, and of what it is now.
func (g *Gateway) lookRange(r *pb.RangeRequest) string {
	if len(r.RangeEnd) > 0 || len(r.Key) == 0 {
		return kindRange
	}
	if r.Revision == 0 && r.MinModRevision == 0 && r.MaxModRevision == 0 && r.MinCreateRevision == 0 &&
		r.MaxCreateRevision == 0 {
		g.countRead(r.Key)
	}
	return kindGet
}

func (g *Gateway) lookDelete(r *pb.DeleteRangeRequest) string {
	if len(r.RangeEnd) > 0 {
		return kindDeleteRange
	}
	g.countWrite(r.Key)
	return kindDelete
}

// lookTxn counts the keys that a transaction may write, in whichever branch. What it reads is not
// counted: the network answers no transactions.
func (g *Gateway) lookTxn(r *pb.TxnRequest) {
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			switch {
			case op.GetRequestPut() != nil:
				g.countWrite(op.GetRequestPut().Key)
			case op.GetRequestDeleteRange() != nil:
				g.lookDelete(op.GetRequestDeleteRange())
			case op.GetRequestTxn() != nil:
				g.lookTxn(op.GetRequestTxn())
			}
		}
	}
}

// countRead and countWrite count the reads and writes of a key that is not reserved: what is
// refused heats nothing.

func (g *Gateway) countRead(key []byte) {
	if !g.reserved.Has(string(key)) {
		g.metrics.Keys.Read(key)
	}
}

func (g *Gateway) countWrite(key []byte) {
	if !g.reserved.Has(string(key)) {
		g.metrics.Keys.Write(key)
	}
}
