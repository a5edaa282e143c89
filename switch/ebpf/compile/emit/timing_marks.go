package emit

// TimingMarks measure a program in parts: it has marks at the nodes of its control flow, and may
// record which of them a packet passes, or end at one.
type TimingMarks struct {
	Trace int // file descriptor of a map to which each passed mark is written; 0: none
	Stop  int // 1 + the number of the mark at which a packet ends; 0: none

	Marks []string // the program's marks, by number, after it was translated
}

// TraceBytes is the size of a map for so many marks: a count of them, and each one's position.
func TraceBytes(marks int) int { return 8 * (1 + marks) }
