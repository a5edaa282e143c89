package emit

// TimingMarks are the settings for measuring a program in parts. Such a program has marks at the
// nodes of its control flow. It may record which marks a packet passes, or end at a mark.
type TimingMarks struct {
	Trace int // file descriptor of a map to which each passed mark is written; 0: none
	Stop  int // 1 + the number of the mark at which a packet ends; 0: none

	Marks []string // the program's marks, by number, after it was translated
}

// TraceBytes is the size of the trace map for a number of marks: 8 bytes for the count of passed
// marks, and 8 for each mark's position.
func TraceBytes(marks int) int { return 8 * (1 + marks) }
