package memory

// Requests describes which requests a program can make in addition to sending a packet: clones,
// another pass, and truncation. It also says where the PHV holds a packet's requests.
type Requests struct {
	// The kinds of requests that the program can make. Returns stands for resubmit and recirculate.
	Clones, truncates, Returns bool

	// Offsets in the PHV.
	Session int // 4 bytes: the clone's session
	Cut     int // 4 bytes: the length to which the frame is truncated, or NoCut
	CopyCut int // 4 bytes: same as Cut, for the copies that are being made
	Passes  int // 4 bytes: how often the packet has passed the program again
	List    int // 2 bytes: the clone's field list
	// 2 bytes: the field list of a resubmission, or 0 if none was requested. A request with the
	// empty list therefore has no effect, as in BMv2.
	Resubmit int
	Recirc   int // 2 bytes: same as Resubmit, for recirculation
	Cloning  int // 1 byte: whether a clone was requested
	end      int

	// Offsets in the state.
	Sessions int // 8 bytes for each clone session, in the same format as for a multicast group
	Cuts     int // 4 bytes for each session: the maximum length, or 0 for no truncation
}

const (
	MaxSessions = 1 << 15    // same limit as in BMv2
	NoCut       = 0x7fffffff // value of Requests.Cut that stands for no truncation
)

// Any reports whether the program makes any of these requests.
func (q *Requests) Any() bool { return q.Clones || q.truncates || q.Returns }

// Reinjects reports whether packets pass the program again.
func (q *Requests) Reinjects() bool { return q.Clones || q.Returns }

// planRequests finds out which requests the program makes, and reserves space for them in the PHV.
func (p *Plan) planRequests(take func(bytes int) int) {
	q := &p.Requests
	for _, a := range p.Prog.Actions {
		for _, prim := range a.Primitives {
			switch prim.Op {
			case "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress":
				q.Clones = true
			case "resubmit", "recirculate":
				q.Returns = true
			case "truncate":
				q.truncates = true
			}
		}
	}
	if !q.Any() {
		return
	}
	at := take(24)
	q.Session, q.Cut, q.CopyCut, q.Passes, q.List, q.Resubmit, q.Recirc, q.Cloning = at, at+4, at+8,
		at+12, at+16, at+18, at+20, at+22
	q.end = at + 24
	if q.Clones {
		q.Sessions, q.Cuts = p.allocate(8*MaxSessions), p.allocate(4*MaxSessions)
	}
}
