package direct

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/client/etcd"
)

// EnvStats is the environment variable with the name of a file. When a client is closed, it appends
// the statistics of client/etcd to this file as a line of JSON.
const EnvStats = "NETCRAQ_SUITE_STATS"

// Used is the sum of the statistics of all closed clients.
type Used struct {
	Clients int
	etcd.Stats
}

func record(s etcd.Stats) error {
	path := os.Getenv(EnvStats)
	if path == "" {
		return nil
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// Sum adds up the lines of a file of statistics.
func Sum(from io.Reader) (Used, error) {
	var u Used
	u.Missed, u.Forwarded, u.Writes = map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
	for in := json.NewDecoder(from); ; {
		var s etcd.Stats
		if err := in.Decode(&s); err == io.EOF {
			return u, nil
		} else if err != nil {
			return u, err
		}
		u.Clients++
		u.Network += s.Network
		for _, m := range []struct{ to, from map[string]uint64 }{
			{u.Missed, s.Missed}, {u.Forwarded, s.Forwarded}, {u.Writes, s.Writes},
		} {
			for k, n := range m.from {
				m.to[k] += n
			}
		}
	}
}

// String formats the statistics as one line.
func (u Used) String() string {
	return fmt.Sprintf("%d clients: %d reads of one key were answered by the switches, %s were not though the key is placed, the switches were not asked for %s; writes under guards: %s",
		u.Clients, u.Network, each(u.Missed), each(u.Forwarded), each(u.Writes))
}

func each(m map[string]uint64) string {
	var out []string
	var all uint64
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s %d", k, m[k]))
		all += m[k]
	}
	return fmt.Sprintf("%d (%s)", all, strings.Join(out, ", "))
}
