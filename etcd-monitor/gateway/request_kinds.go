package gateway

import (
	"path"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Kinds of the key-value service's requests in metrics. Other methods have their own names there.
const (
	kindGet         = "get" // a Range of one key
	kindRange       = "range"
	kindPut         = "put"
	kindDelete      = "delete" // a DeleteRange of one key
	kindDeleteRange = "delete_range"
	kindTxn         = "txn"
	kindCompact     = "compact"
)

// look counts the keys of a request that the gateway forwards as bytes. It returns the request's
// kind and aim.
func (g *Gateway) look(method string, request []byte) (kind string, at aim) {
	switch method {
	case "/etcdserverpb.KV/Range":
		var r pb.RangeRequest
		if r.Unmarshal(request) != nil {
			return kindRange, aim{} // etcd will report the error in the request
		}
		kind := g.lookRange(&r)
		if kind == kindGet {
			g.metrics.Forwarded("off")
		}
		return kind, g.upstream.sizes.aim(&r)
	case "/etcdserverpb.KV/Put":
		key, _ := field(request, keyField, protowire.BytesType) // the value may be large, so it is not parsed
		g.countWrite(key)
		return kindPut, aim{to: aWrite}
	case "/etcdserverpb.KV/DeleteRange":
		var r pb.DeleteRangeRequest
		if r.Unmarshal(request) != nil {
			return kindDeleteRange, aim{to: aWrite}
		}
		return g.lookDelete(&r), aim{to: aWrite}
	case "/etcdserverpb.KV/Txn":
		var r pb.TxnRequest
		if r.Unmarshal(request) == nil {
			g.lookTxn(&r)
		}
		return kindTxn, aimOfTxn(&r)
	case "/etcdserverpb.KV/Compact":
		return kindCompact, aim{to: aWrite}
	case "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Lease/LeaseRevoke":
		return path.Base(method), aim{to: aWrite}
	}
	return path.Base(method), aim{}
}

// aimOfTxn returns the member that should get a transaction.
func aimOfTxn(r *pb.TxnRequest) aim {
	if changes(r) {
		return aim{to: aWrite}
	}
	return aim{}
}

// changes reports whether any branch of a transaction may change something. If none does, each
// member of etcd can answer the transaction itself, like a range.
func changes(r *pb.TxnRequest) bool {
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			if op.GetRequestPut() != nil || op.GetRequestDeleteRange() != nil ||
				op.GetRequestTxn() != nil && changes(op.GetRequestTxn()) {
				return true
			}
		}
	}
	return false
}

// lookRange counts a read if a slot in the network could answer it: a read of one key's current
// value.
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

// lookTxn counts the keys that any branch of a transaction may write. It does not count reads,
// because the switches do not answer transactions.
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

// countRead and countWrite count a read or write of a key. They ignore reserved keys, because
// requests for these keys are refused.

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
