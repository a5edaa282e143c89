package paperchain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
)

// operation is a client's request and its answer.
type operation struct {
	key   int
	write bool
	value uint64
}

// register models one key as its clients see it. It is a register that starts with 0.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var out [keys][]porcupine.Operation
		for _, o := range history {
			k := o.Input.(operation).key
			out[k] = append(out[k], o)
		}
		return out[:]
	},
	Init: func() any { return uint64(0) },
	Step: func(state, in, out any) (bool, any) {
		if o := in.(operation); o.write {
			return true, o.value
		}
		return out.(uint64) == state.(uint64), state
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v: %v", in, out) },
}

const keys = 3

// TestHistories: the answers that clients get at all switches are linearizable while links delay
// and lose frames.
func TestHistories(t *testing.T) {
	for seed := range uint64(300) {
		dice := rand.New(rand.NewPCG(seed, 41))
		n := newNetwork(t, length, newInterpreted)
		n.lose = func(end, *Packet) bool { return dice.IntN(60) == 0 }
		var history []porcupine.Operation
		clock, written := int64(0), uint64(0)
		for range 6 { // a round ends when no frame is in flight
			var asked [length]*porcupine.Operation
			for moves := 0; ; moves++ {
				clock++
				busy := n.busy()
				if host := dice.IntN(length); asked[host] == nil && moves < 60 {
					in := operation{key: dice.IntN(keys), write: dice.IntN(2) == 0}
					p := Packet{Op: Read, Key: uint32(in.key)}
					if in.write {
						written++
						in.value = written
						p.Op, p.Value = Write, value(written)
					}
					asked[host] = &porcupine.Operation{ClientId: host, Input: in, Call: clock}
					n.inbox[host] = nil
					n.send(host, p)
				} else if len(busy) > 0 {
					n.step(busy[dice.IntN(len(busy))])
				} else if moves >= 60 {
					break
				}
				for host, o := range asked {
					if o != nil && len(n.inbox[host]) > 0 {
						o.Output, o.Return = number(n.inbox[host][0].Value), clock
						history = append(history, *o)
						asked[host], n.inbox[host] = nil, nil
					}
				}
			}
			for _, o := range asked { // a write without an answer may be executed at any time, or never
				if o != nil && o.Input.(operation).write {
					o.Return = math.MaxInt64
					history = append(history, *o)
				}
			}
		}
		if len(history) < 50 {
			t.Fatalf("seed %d: a history of %d operations", seed, len(history))
		}
		if !porcupine.CheckOperations(register, history) {
			t.Fatalf("seed %d: what clients were told is not linearizable: %+v", seed, history)
		}
	}
}
