package masquerade

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestIntervals checks that nested prefixes become one interval, and that adjacent prefixes stay
// two intervals. An interval may extend to the last address.
func TestIntervals(t *testing.T) {
	for in, want := range map[string]string{
		"10.244.1.0/24":                                 "10.244.1.0 10.244.2.0)",
		"10.244.2.0/24 10.244.1.0/24":                   "10.244.1.0 10.244.2.0) 10.244.2.0 10.244.3.0)",
		"10.244.1.0/24 10.244.0.0/16 10.244.255.255/32": "10.244.0.0 10.245.0.0)",
		"192.168.0.1/32 192.168.0.1/32":                 "192.168.0.1 192.168.0.2)",
		"255.255.255.0/24 0.0.0.0/8":                    "0.0.0.0 1.0.0.0) 255.255.255.0",
		"":                                              "",
		"fd00:244:0:1::/64 fd00:244::/48 fd00::2/128":   "fd00::2 fd00::3) fd00:244:: fd00:244:1::)",
		"ff00::/8 fe80::/10":                            "fe80:: fec0::) ff00::",
	} {
		var prefixes []netip.Prefix
		for _, s := range strings.Fields(in) {
			prefixes = append(prefixes, netip.MustParsePrefix(s))
		}
		var got []string
		for _, e := range intervals(prefixes) {
			a, _ := netip.AddrFromSlice(e.Key)
			got = append(got, a.String()+map[bool]string{true: ")"}[e.IntervalEnd])
		}
		if s := fmt.Sprint(strings.Join(got, " ")); s != want {
			t.Errorf("%s: %q, not %q", in, s, want)
		}
	}
}
