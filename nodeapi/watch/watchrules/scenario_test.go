package watchrules

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestScenarios runs the scenarios in testdata/*.txt. A line with an event is followed by the
// machine's reactions, which begin with "> ". UPDATE=1 writes the actual reactions to the files.
// The events are:
//
//	at 5s                     sets the time
//	follow w key [after]      leave w        unfollow w key
//	notify id version value   ("-": deleted)
//	found ticket id version value [helped]   the result of a read ("-": no value); id 0: no key
//	failed ticket
//	take w [limit]
//	suspect chain             suspect all
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("it did:\n%s\nwant:\n%s", got, text)
			}
		})
	}
}

// bounds is the configuration of the machine in the scenarios.
var bounds = Config{Round: 10 * time.Second, Unhelped: time.Second, Retry: 100 * time.Millisecond,
	Suspect: 500 * time.Millisecond, Reads: 2}

func play(t *testing.T, text string) string {
	m := New(bounds)
	var now time.Duration
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "> ") {
			continue
		}
		out.WriteString(line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		say := func(format string, a ...any) { fmt.Fprintf(&out, "> "+format+"\n", a...) }
		version := func(word string) wire.Version {
			v, err := wire.ParseVersion(word)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		id := func(word string) wire.Key {
			n, err := strconv.ParseUint(word, 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return wire.Key(n)
		}
		number := func(word string) uint64 {
			n, err := strconv.ParseUint(strings.TrimPrefix(word, "w"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		key := func(word string) store.Key { return store.Key{Namespace: "n", Name: word} }
		switch words[0] {
		case "at":
			var err error
			if now, err = time.ParseDuration(words[1]); err != nil {
				t.Fatal(err)
			}
		case "follow":
			var after wire.Version
			if len(words) > 3 {
				after = version(words[3])
			}
			m.Follow(now, Watcher(number(words[1])), key(words[2]), after, len(words) > 3)
		case "unfollow":
			m.Unfollow(Watcher(number(words[1])), key(words[2]))
		case "leave":
			m.Leave(Watcher(number(words[1])))
		case "notify":
			m.Notified(now, id(words[1]), version(words[2]), words[3] != "-", []byte(words[3]))
		case "found":
			r := Reading{ID: id(words[2]), Helped: slices.Contains(words, "helped")}
			ticket := Ticket(number(words[1]))
			if k := m.reads[ticket]; k != nil {
				r.Key = k.name
			}
			r.Version, r.Found, r.Value = version(words[3]), words[4] != "-", []byte(words[4])
			m.Ended(now, ticket, r)
		case "failed":
			m.Failed(now, Ticket(number(words[1])))
		case "take":
			limit := 100
			if len(words) > 2 {
				limit = int(number(words[2]))
			}
			changes, more := m.Take(Watcher(number(words[1])), limit)
			for _, c := range changes {
				value := string(c.Value)
				if !c.Found {
					value = "-"
				}
				say("%s %v %s, overtaken %d", c.Key.Name, c.Version, value, c.Overtaken)
			}
			if more {
				say("more")
			}
		case "suspect":
			if words[1] == "all" {
				m.SuspectAll(now)
			} else {
				m.SuspectChain(now, uint8(number(words[1])))
			}
		default:
			t.Fatalf("what is %q?", line)
		}
		for _, r := range m.Begin(now) {
			say("read %d of %s", r.Ticket, r.Key.Name)
		}
		for _, w := range m.Ready() {
			say("w%d is ready", w)
		}
		if next, ok := m.Next(); words[0] == "at" && ok {
			say("next at %v", next)
		}
	}
	return out.String()
}
