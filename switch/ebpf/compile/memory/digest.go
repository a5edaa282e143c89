package memory

// Digests: the values of a learn list go through a ring to the process, at most one list per
// packet, with the values at the end of ingress. If the process is too slow, digests are lost,
// which P4 allows.
//
// A record: the pipeline's number (8 bytes), the list's id (8 bytes), and each value in words of 8
// bytes in host order, the most significant one first.
const (
	DigestHeader = 16
)

// planDigests finds out whether the program sends digests.
func (p *Plan) planDigests(take func(bytes int) int) {
	for _, a := range p.Prog.Actions {
		for _, prim := range a.Primitives {
			if prim.Op == "generate_digest" && p.Digest == 0 {
				p.Digest = take(2)
			}
		}
	}
}
