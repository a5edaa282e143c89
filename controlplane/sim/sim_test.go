package sim

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/logbook"
	"github.com/netcraq/netcraq/controlplane/sim/trouble"
)

// TestSeeds runs many seeds. None may show a violation, and each fault and event that the simulator
// is meant to cover must have happened.
func TestSeeds(t *testing.T) {
	cover := logbook.Coverage{}
	err := Many(t.Context(), nil, 1, testSeeds, runtime.GOMAXPROCS(0), func(r *Result) bool {
		cover.Add(r.Coverage)
		for _, v := range r.Violations {
			t.Errorf("seed %d (%s): %v\n    %s", r.Seed, r.Network, v, r.Replay(""))
		}
		return !t.Failed()
	})
	if err != nil {
		t.Fatal(err)
	}
	if t.Failed() || testing.Short() || testSeeds < 2000 {
		return
	}
	for _, what := range mustHappen {
		if cover[what] == 0 {
			t.Errorf("it never happened in %d seeds: %s", testSeeds, what)
		}
	}
	var b strings.Builder
	if err := cover.Write(&b); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", b.String())
}

// TestSeedsThatFailed runs seeds that once revealed bugs. A seed's run changes with the simulator,
// so these seeds prove less over time, but they cost little. Bugs that a scenario can describe have
// one in testdata.
func TestSeedsThatFailed(t *testing.T) {
	for seed, why := range map[uint64]string{
		27628:  "a donor had an earlier controller's record of a session of the controller's, and a joiner that had none got it",
		72651:  "a member of a chain without keys left and came back unheard, and got a lease for the part that it had before",
		30170:  "a switch that was cut off while a key was removed was made the chain's only member, and wrote to its entry",
		42051:  "a key was being moved, the tail was killed and came back empty, and what it said of the slot was moved",
		55521:  "half an addition of a key was undone after a change of the chain, and never came to an end",
		97939:  "the same",
		196:    "a joiner got the alias of a key that was being moved as one of the key's realm",
		404:    "a controller worked on keys while a switch was a shadow that an earlier one had left so",
		11284:  "a joiner had an entry of a removed key without its tombstone, and took a late reply for the newest",
		9761:   "what told a client's deletion from a tombstone that a controller had given up counted that as one",
		28302:  "an operator left out who had left the network, that was not on record, and the next controller brought it in",
		61723:  "an operator's change was done before it was on record, and the power was cut",
		72451:  "the same, of a frozen chain",
		10185:  "a move was on record with what another operation saved, and the checker did not know that clients are told of it",
		48923:  "what a controller had written of a tombstone that it wrote again when it placed a key was taken for a client's deletion",
		89291:  "the same",
		46540:  "a switch was killed while another was about to be given up for what it had not answered: both had the data, none else",
		107993: "a change could not be recorded, and keys were worked on at once, before a member was given up that had been silent meanwhile",
	} {
		err := Many(t.Context(), nil, seed, 1, 1, func(r *Result) bool {
			for _, v := range r.Violations {
				t.Errorf("seed %d (%s; once: %s): %v\n    %s", r.Seed, r.Network, why, v, r.Replay(""))
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// mustHappen lists the events that must happen in 2,000 seeds. If one does not, the simulator does
// not test it.
var mustHappen = []string{
	// These are events in the program: retries executed once, answers by a new tail, a CAS that
	// waits for a write in flight, read repair, overtaken writes, fences, and messages of a hostile
	// switch.
	"packets.write_retried", "packets.write_repeated", "packets.write_superseded", "packets.write_passed", "packets.read_dirty", "packets.read_forwarded",
	"packets.cas_retry", "packets.cas_failed", "packets.cas_to_tail", "packets.ack_old", "packets.reply_repaired", "packets.drop_old_request",
	"packets.drop_stale_epoch", "packets.drop_not_member", "packets.write_frozen", "packets.not_serving", "packets.no_chain",
	"packets.lease_refused", "packets.drop_untrusted", "packets.drop_not_peer", "worker.sent",
	// These events are in the controller.
	"chain.chain.installed", "chain.chain.fenced", "chain.chain.lost-member", "chain.chain.not-drained", "controller.redriven", "controller.deposed",
	"chain.chain.rejoining", "chain.chain.not-rejoined", "chain.chain.full",
	"chain.chain.failover", "chain.chain.recovered", "chain.chain.not-recovered", "chain.chain.recovery-abandoned", "controller.copied", "controller.compared", "controller.caught up",
	"controller.lease waited out", "controller.short lease", "controller.registers read", "controller.registers not shown",
	"store.not synced", "store.older record",
	// These events are in the network.
	"network.lost", "network.duplicated", "network.reordered", "network.late", "network.cut off",
	// These are faults, at each position in the chain.
	"fault.killed at head", "fault.killed at middle", "fault.killed at tail", "fault.killed at outside",
	"fault.cut off at head", "fault.cut off at middle", "fault.cut off at tail",
	"fault.controller starved", "controller.was held up",
	"fault.suspended at head", "fault.suspended at middle", "fault.suspended at tail",
	"fault.wiped at head", "fault.wiped at middle", "fault.wiped at tail", "fault.began with garbage",
	"fault.chain without keys", "fault.members of a chain without keys", "fault.left before the keys",
	// These events concern messages between controllers and switches.
	"channels.overtaken packet-out", "channels.overtaken Write", "channels.packet-out of a connection before",
	"channels.packet-out of a controller before", "channels.carried out when it was given up: Write",
	"channels.carried out when it was given up: SetForwardingPipelineConfig", "controller.Write given up",
	"controller.found a switch changed", "controller.heard the reply to another's LEASE", "calls.guessed KEY_ID answered",
	// These events concern clients.
	"fault.rights taken", "fault.session taken", "fault.key removed", "packets.denied", "packets.bad_session", "packets.write_not_found",
	"calls.write of unknown outcome", "calls.cas of unknown outcome", "calls.cas done", "calls.cas failed", "calls.eventual read done", "clients.strays", "watcher.told",
}

func init() {
	for _, f := range trouble.AllFaults {
		mustHappen = append(mustHappen, "fault."+string(f))
	}
}

// TestSameSeedSameRun: a failing seed can be replayed. The second run has a timeline, and the third
// run comes after another seed in the same simulator. Neither may change the result.
func TestSameSeedSameRun(t *testing.T) {
	p, err := compiled.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	used := New(p)
	for seed := range uint64(12) {
		run := func(s *Simulator, trace bool) (string, string) {
			var lines strings.Builder
			onLine := func(l logbook.Line) { fmt.Fprintln(&lines, l) }
			if !trace {
				onLine = nil
			}
			r, err := s.Run(seed, onLine)
			if err != nil {
				t.Fatal(err)
			}
			var sum strings.Builder
			fmt.Fprintln(&sum, r.Calls, r.Packets, r.Took, r.Violations)
			if err := r.Coverage.Write(&sum); err != nil {
				t.Fatal(err)
			}
			return sum.String(), lines.String()
		}
		plain, _ := run(used, false)
		traced, first := run(used, true)
		again, second := run(New(p), true)
		if plain != traced || traced != again {
			t.Errorf("seed %d: the same seed ran otherwise:\n%s\n%s\n%s", seed, plain, traced, again)
		}
		if first != second || len(first) < 1000 {
			t.Errorf("seed %d: the timelines differ, or are short (%d and %d bytes)", seed, len(first), len(second))
		}
	}
}
