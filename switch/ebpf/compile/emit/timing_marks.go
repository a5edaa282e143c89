package emit

// TimingMarks is how a program is measured in parts: it has marks at the nodes of its control flow,
// and may tell which of them a packet comes by, or end at one.
type TimingMarks struct {
	Trace int // a map: where it is not 0, each mark that a packet comes by is written there
	Stop  int // 1 + the number of the mark at which a packet ends; 0: at none

	Marks []string // what the program has, by number, after it was translated
}

// TraceBytes is how large a map for so many marks is: a count of them, and each one's turn.
func TraceBytes(marks int) int { return 8 * (1 + marks) }
