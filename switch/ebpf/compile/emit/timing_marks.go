package emit

// TimingMarks are the settings for measuring a program in parts. Such a program has marks at the
// nodes of its control flow. It may record the marks that a packet passes, or end at a mark.
type TimingMarks struct {
	Trace int // file descriptor of the map that records each passed mark; 0 for none
	Stop  int // 1 + the number of the mark at which a packet ends; 0 for none

	Marks []string // names of the program's marks by number, set during translation
}

// TraceBytes returns the size of the trace map for a number of marks. The map has 8 bytes for the
// count of passed marks, and 8 bytes for each mark's position.
func TraceBytes(marks int) int { return 8 * (1 + marks) }
