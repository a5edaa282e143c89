package netplan

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// TestReadPods checks that the leader keeps only the valid entries of a malformed list.
func TestReadPods(t *testing.T) {
	one := `{"uid":"1","ip":"10.244.2.2","mac":"0a:00:00:00:00:01","port":64}`
	for _, c := range []struct {
		list                     string
		pods, malformed, surplus int
		fails                    bool
	}{
		{"[]", 0, 0, 0, false},
		{"null", 0, 0, 0, false},
		{"[" + one + "," + one + "]", 2, 0, 0, false},
		{`[` + one + `,{"ip":"x"},{"port":-1},{"port":"64"},7,null,[[]],{"mac":{}}]`, 2, 6, 0, false}, // null is an empty pod
		{"[" + strings.Repeat(one+",", 3999) + one + "]", PodPorts, 0, 4000 - PodPorts, false},
		{"[" + strings.Repeat(`{"ip":"x"},`, 3999) + one + "]", 0, PodPorts, 4000 - PodPorts, false},
		{"{}", 0, 0, 0, true},
		{`"x"`, 0, 0, 0, true},
		{"[" + one, 0, 0, 0, true},
		{"[" + one + "}", 0, 0, 0, true},
		{"[" + strings.Repeat("0,", ListLimit), 0, 0, 0, true},
		{"[" + strings.Repeat(" ", ListLimit), 0, 0, 0, true},
		{`["` + strings.Repeat("x", ListLimit), 0, 0, 0, true},
		{strings.Repeat("[", ListLimit), 0, 0, 0, true},
	} {
		l, err := ReadPods(json.NewDecoder(io.LimitReader(strings.NewReader(c.list+"\n"), ListLimit)))
		if (err != nil) != c.fails || err == nil &&
			(len(l.Pods) != c.pods || l.Malformed != c.malformed || l.Surplus != c.surplus) {
			t.Errorf("%.60s: %d pods, %d malformed, %d surplus, %v", c.list, len(l.Pods), l.Malformed, l.Surplus, err)
		}
	}
}

func TestPodsOf(t *testing.T) {
	a := func(s string) agentapi.Address { return agentapi.Address{Prefix: netip.MustParsePrefix(s)} }
	got := PodsOf([]agentapi.Record{
		{State: agentapi.Ready, Pod: agentapi.Pod{Namespace: "team", Name: "a", UID: "1"}, Port: 64,
			Container: agentapi.Interface{MAC: "02:00:00:00:00:01"}, Addresses: []agentapi.Address{a("fd00::2/64"), a("10.244.0.2/24"), a("10.244.0.9/24")}},
		{State: agentapi.Adding, Port: 65, Addresses: []agentapi.Address{a("10.244.0.3/24")}},
		{State: agentapi.Ready, Port: 66, Addresses: []agentapi.Address{a("fd00::4/64")}},
	})
	// the last entry is listed only so that the leader can report that it is not a host
	if fmt.Sprint(got) != "[{{team a 1} 10.244.0.2 02:00:00:00:00:01 64} {{  } fd00::4  66}]" {
		t.Errorf("%v", got)
	}
}
