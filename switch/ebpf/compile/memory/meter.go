package memory

// A meter has two token buckets, as in BMv2. The peak bucket is checked first. A packet that finds
// too few tokens there is red, and takes none from the committed bucket. A packet that finds too
// few tokens in the committed bucket is yellow. A meter without configuration returns green. Meters
// have a lock of their own, so no two packets get the same tokens.
//
// A cell has these parts:
//
//	0    8 bytes  1 if it is configured
//	8   32 bytes  the peak bucket: tokens a second, burst, tokens, and how many
//	              tokens its rate had made from the clock's zero to the last refill
//	40  32 bytes  the committed bucket
const (
	MeterSet    = 0
	MeterPeak   = 8
	BucketBytes = 32
	MeterBytes  = MeterPeak + 2*BucketBytes

	// MostPerSecond bounds a rate, so that a million times the rate fits in 64 bits.
	MostPerSecond = 1 << 43
)

// planMeters reserves space for the meter arrays. Direct meters are in the slots of table entries.
func (p *Plan) planMeters() {
	for _, m := range p.Prog.Meters {
		a := ArrayPlan{Cell: MeterBytes, Size: m.Size, Stride: MeterBytes}
		if !m.Direct {
			a.Off = p.allocate(a.Cell * a.Size)
		}
		p.Meters = append(p.Meters, a)
	}
}
