package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

// request compiles what is done with the packet only after the pipeline: clone, resubmit,
// recirculate, digest. The last request of a kind counts.
func (c *compiler) request(p *bmv2json.Primitive) doFn {
	c.onlyV1model(p)
	arg := p.Args
	switch p.Op {
	case "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress":
		c.checkFieldList(arg[1])
		s, fl := c.index(arg[0]), c.index(arg[1])
		return func(st *state) {
			st.cloning, st.session, st.cloneFL = true, uint32(s(st)&0x7fff),
				int(fl(st)&0xffff)
		}
	case "resubmit":
		c.checkFieldList(arg[0])
		fl := c.index(arg[0])
		return func(st *state) { st.resubmit = int(fl(st) & 0xffff) }
	case "recirculate":
		c.checkFieldList(arg[0])
		fl := c.index(arg[0])
		return func(st *state) { st.recirc = int(fl(st) & 0xffff) }
	default: // generate_digest
		if arg[1].Op == bmv2json.OpConst && (!arg[1].Const.IsInt64() ||
			c.prog.LearnList(int(arg[1].Const.Int64())) == nil) {
			refuse(arg[1].Path, "a digest of learn list %s, which there is not", arg[1].Const)
		}
		id := c.index(arg[1])
		return func(st *state) { st.digest = int(id(st) & 0xffff) }
	}
}

// checkFieldList refuses a list that there is not; 0 stands for the empty one.
func (c *compiler) checkFieldList(e *bmv2json.Expr) {
	if e.Op == bmv2json.OpConst && e.Const.Sign() != 0 &&
		(!e.Const.IsInt64() || c.prog.FieldList(int(e.Const.Int64())) == nil) {
		refuse(e.Path, "field list %s, which there is not", e.Const)
	}
}

// onlyV1model refuses a primitive that asks v1model's engine for something.
func (c *compiler) onlyV1model(p *bmv2json.Primitive) {
	if c.psa {
		refuse(p.Path, "%s, which is v1model's, in a PSA program", p.Op)
	}
}
