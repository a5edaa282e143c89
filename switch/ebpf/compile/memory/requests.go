package memory

// Requests describes the requests that a program can make in addition to sending a packet: clones,
// another pass, and truncation. It says where the PHV holds a packet's requests.
type Requests struct {
	// the requests that the program can make; returns: resubmit and recirculate
	Clones, truncates, Returns bool

	// Places in the PHV.
	Session int // 4 bytes: the clone's session
	Cut     int // 4 bytes: the longest frame that may leave, or NoCut
	CopyCut int // 4 bytes: like Cut, for the copies that are being made
	Passes  int // 4 bytes: number of times that the packet came back
	List    int // 2 bytes: the clone's field list
	// 2 bytes: the field list; 0: no resubmission was requested (as in BMv2, where a request with
	// the empty list therefore has no effect)
	Resubmit int
	Recirc   int // 2 bytes: like Resubmit, for recirculation
	Cloning  int // 1 byte
	end      int

	// Places in the state.
	Sessions int // 8 bytes for each clone session, in the format for a multicast group
	Cuts     int // 4 bytes for each session: the maximum length; 0: not truncated
}

const (
	MaxSessions = 1 << 15    // BMv2's
	NoCut       = 0x7fffffff // in Requests.Cut: the frame is not truncated
)

// Any reports whether the program makes any such requests.
func (q *Requests) Any() bool { return q.Clones || q.truncates || q.Returns }

// Reinjects reports whether packets come back.
func (q *Requests) Reinjects() bool { return q.Clones || q.Returns }

// planRequests finds out which requests the program makes, and reserves space for them.
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
