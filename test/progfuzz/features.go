package progfuzz

import (
	"math/rand/v2"
	"reflect"
	"strings"
)

// Features says which language features a program may have. Each seed leaves out many features. So
// the remaining ones occur together more often, and a failure has few possible causes.
type Features struct {
	Wide      bool // fields and values of more than 64 bits
	Signed    bool
	Saturate  bool
	Shift     bool
	Multiply  bool
	Concat    bool // concatenation and slices
	Stack     bool
	Union     bool
	Varbit    bool
	Lookahead bool
	Verify    bool // calls of verify, and other parser errors
	Loop      bool // a loop in the parser that fills a header stack
	ValueSet  bool
	TwoWays   bool // more than one default case in a select
	Table     bool
	Register  bool
	Counter   bool
	Meter     bool
	Random    bool
	Hash      bool
	// csum16 and xor16 over a number of bits that is not a multiple of the algorithm's word, in
	// hashes and checksums
	OddHash   bool
	Checksum  bool
	Resubmit  bool
	Recirc    bool
	CloneI2E  bool
	CloneE2E  bool
	Multicast bool
	Truncate  bool
	Digest    bool
	CPU       bool // the program has a port to the controller
	Call      bool // functions, actions with arguments, controls within controls
	Exit      bool
	// reads from invalid headers, and from arrays beyond their end; such programs do not run on
	// BMv2
	Loose bool
	Large bool
}

// chance is the percentage of programs that have a feature. Features that are not listed have 50.
var chance = map[string]int{"Loose": 15, "Large": 15, "Meter": 25, "Digest": 25, "CPU": 30,
	"Truncate": 20, "TwoWays": 20, "ValueSet": 20, "Random": 25, "Table": 70, "Resubmit": 30,
	"Recirc":   30,
	"CloneI2E": 30, "CloneE2E": 30, "OddHash": 30}

// draw chooses features at random.
func draw(r *rand.Rand) (f Features) {
	v := reflect.ValueOf(&f).Elem()
	for i := range v.NumField() {
		n, ok := chance[v.Type().Field(i).Name]
		if !ok {
			n = 50
		}
		v.Field(i).SetBool(r.IntN(100) < n)
	}
	f.Loop = f.Loop && f.Stack
	return f
}

// clones reports whether packets may be cloned, back whether they may come back to ingress, and
// copies whether they may be copied.
func (f Features) clones() bool { return f.CloneI2E || f.CloneE2E }
func (f Features) back() bool   { return f.Resubmit || f.Recirc }
func (f Features) copies() bool { return f.clones() || f.Multicast }

// String lists the features.
func (f Features) String() string {
	var names []string
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		if v.Field(i).Bool() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return strings.Join(names, " ")
}
