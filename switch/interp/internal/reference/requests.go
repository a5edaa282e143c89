package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
)

// request compiles the requests that the engine serves after the pipeline: clone, resubmit,
// recirculate and digest. The last request of a kind wins.
func (c *Compiler) request(p *bmv2json.Primitive) expression.Statement {
	c.onlyV1model(p)
	arg := p.Args
	switch p.Op {
	case "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress":
		c.checkFieldList(arg[1])
		s, fl := c.Index(arg[0]), c.Index(arg[1])
		return func(st *packet.State) {
			st.Cloning, st.CloneSession, st.CloneList = true, uint32(s(st)&0x7fff),
				int(fl(st)&0xffff)
		}
	case "resubmit":
		c.checkFieldList(arg[0])
		fl := c.Index(arg[0])
		return func(st *packet.State) { st.ResubmitList = int(fl(st) & 0xffff) }
	case "recirculate":
		c.checkFieldList(arg[0])
		fl := c.Index(arg[0])
		return func(st *packet.State) { st.RecirculateList = int(fl(st) & 0xffff) }
	default: // the primitive generate_digest
		if arg[1].Op == bmv2json.OpConst && (!arg[1].Const.IsInt64() ||
			c.Source.LearnList(int(arg[1].Const.Int64())) == nil) {
			refusal.Panic(arg[1].Path, "a digest of learn list %s, which there is not", arg[1].Const)
		}
		id := c.Index(arg[1])
		return func(st *packet.State) { st.DigestList = int(id(st) & 0xffff) }
	}
}

// checkFieldList refuses a field list that does not exist. 0 stands for the empty list.
func (c *Compiler) checkFieldList(e *bmv2json.Expr) {
	if e.Op == bmv2json.OpConst && e.Const.Sign() != 0 &&
		(!e.Const.IsInt64() || c.Source.FieldList(int(e.Const.Int64())) == nil) {
		refusal.Panic(e.Path, "field list %s, which there is not", e.Const)
	}
}

// onlyV1model refuses a primitive in a PSA program if only v1model supports the primitive.
func (c *Compiler) onlyV1model(p *bmv2json.Primitive) {
	if c.PSA {
		refusal.Panic(p.Path, "%s, which is v1model's, in a PSA program", p.Op)
	}
}
