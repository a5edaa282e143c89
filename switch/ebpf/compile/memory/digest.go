package memory

// Digests. The values of a learn list go to the process through a ring. A packet sends at most one
// list, with the values at the end of ingress. If the process is too slow, digests are lost, which
// P4 allows.
//
// A record has the pipeline's number (8 bytes), the list's id (8 bytes), and each value. A value is
// in words of 8 bytes in host order, the most significant word first.
const (
	DigestHeader = 16
)

// planDigests finds out whether the program sends digests, and reserves space in the PHV for them.
func (p *Plan) planDigests(take func(bytes int) int) {
	for _, a := range p.Prog.Actions {
		for _, prim := range a.Primitives {
			if prim.Op == "generate_digest" && p.Digest == 0 {
				p.Digest = take(2)
			}
		}
	}
}
