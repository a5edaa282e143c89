package memory

// Requests are a program's requests besides that a packet leaves: clones, another pass, and
// truncation. It says where the PHV has a packet's requests.
type Requests struct {
	// what the program can ask for; returns: resubmit and recirculate
	Clones, truncates, Returns bool

	// In the PHV.
	Session int // 4 bytes: of the clone
	Cut     int // 4 bytes: the longest frame that may leave, or NoCut
	CopyCut int // 4 bytes: the same for the copies that are being made
	Passes  int // 4 bytes: how often the packet came back
	List    int // 2 bytes: the clone's field list
	// 2 bytes: the field list; 0: not asked for (as in BMv2, whose empty list therefore asks for
	// nothing)
	Resubmit int
	Recirc   int // 2 bytes: the same
	Cloning  int // 1 byte
	end      int

	// In the state.
	Sessions int // 8 bytes for each clone session, as of a multicast group
	Cuts     int // 4 bytes for each: 0: as long as it is
}

const (
	MaxSessions = 1 << 15    // BMv2's
	NoCut       = 0x7fffffff // in Requests.Cut: the frame is not truncated
)

// Any reports whether the program needs any of it.
func (q *Requests) Any() bool { return q.Clones || q.truncates || q.Returns }

// Reinjects reports whether packets come back.
func (q *Requests) Reinjects() bool { return q.Clones || q.Returns }

// planRequests finds out what the program asks for, and makes room for it.
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
