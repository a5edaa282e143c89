package program

import (
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEventNames compares the mirrored names with the P4 source.
func TestEventNames(t *testing.T) {
	src, err := os.ReadFile("../../../p4src/include/events.p4")
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]string{}
	for _, m := range regexp.MustCompile(`(?m)^const bit<8> EVENT_(\w+)\s*=\s*(\d+);`).FindAllStringSubmatch(string(src), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		want[n] = strings.ToLower(m[1])
	}
	if len(want) < 20 {
		t.Fatalf("only %d events found in the P4 source", len(want))
	}
	if diff := cmp.Diff(want, maps.Clone(EventNames)); diff != "" {
		t.Errorf("eventNames differs from p4src/include/events.p4 (-source +ours):\n%s", diff)
	}
}
