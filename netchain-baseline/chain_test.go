package netchain

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
)

func value(n uint64) (v [ValueBytes]byte) {
	binary.BigEndian.PutUint64(v[8:], n)
	return v
}

func number(v [ValueBytes]byte) uint64 { return binary.BigEndian.Uint64(v[8:]) }

// cas returns a CAS packet that expects the value old and writes the value fresh.
func cas(key uint32, old, fresh uint64) *Packet {
	p := &Packet{Op: CAS, Key: key, Value: value(fresh)}
	binary.BigEndian.PutUint64(p.Value[:], old)
	return p
}

func eachWidth(t *testing.T, f func(t *testing.T, seqBits int)) {
	for _, bits := range []int{16, 128} {
		t.Run(fmt.Sprintf("SEQ %d bits", bits), func(t *testing.T) { f(t, bits) })
	}
}

func expect(t *testing.T, got *Packet, op Op, status Status, v uint64) {
	t.Helper()
	if got.Op != op || got.Status != status || number(got.Value) != v {
		t.Errorf("got %v %v, value %d; want %v %v, %d", got.Op, got.Status, number(got.Value), op, status, v)
	}
}

func (n *network) fail(name string) {
	n.t.Helper()
	n.kill(name)
	n.do(func(ctx context.Context) error { return n.Fail(ctx, name) })
}

func (n *network) recover(name, by string) {
	n.t.Helper()
	n.do(func(ctx context.Context) error {
		_, err := n.Recover(ctx, name, by)
		return err
	})
}

func TestOperations(t *testing.T) {
	eachWidth(t, func(t *testing.T, bits int) {
		n := newNetwork(t, ring(4, 4), bits, 1, 1)
		expect(t, n.ask(0, &Packet{Op: Read}), ReadReply, NotFound, 0)
		expect(t, n.ask(2, &Packet{Op: Write, Value: value(41)}), WriteReply, OK, 41)
		for host := range 4 {
			expect(t, n.ask(host, &Packet{Op: Read}), ReadReply, OK, 41)
		}
		expect(t, n.ask(1, cas(0, 40, 50)), CASReply, CASFailed, 41)
		expect(t, n.ask(1, cas(0, 41, 42)), CASReply, OK, 42)
		expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 42)
		if r := n.ask(3, &Packet{Op: Delete}); r.Op != DeleteReply || r.Status != OK {
			t.Errorf("%+v", r)
		}
		expect(t, n.ask(0, &Packet{Op: Read}), ReadReply, NotFound, 0)
		expect(t, n.ask(0, &Packet{Op: Read, Key: 8}), ReadReply, NotFound, 0)
		// Each switch counts its own work: only the tail counts the read, and every switch counts
		// the write.
		for i, x := range n.nodes {
			reads, err := x.p.ReadCounter("NetchainIngress.replica.reads", 0)
			check(t, err)
			writes, err := x.p.ReadCounter("NetchainIngress.replica.writes", 0)
			check(t, err)
			wantReads := uint64(0)
			if i == 3 {
				wantReads = 7
			}
			if reads.Packets != wantReads || writes.Packets != 3 {
				t.Errorf("%s: %d reads, %d writes", x.s.Name, reads.Packets, writes.Packets)
			}
		}
	})
}

// TestWrap checks that a newer sequence number counts as newer even after 16-bit numbers have
// wrapped around.
func TestWrap(t *testing.T) {
	n := newNetwork(t, ring(2, 2), 16, 1, 1)
	for _, x := range n.nodes {
		check(t, x.p.WriteRegister("NetchainIngress.replica.sequence", 0, []byte{0xff, 0xfe}))
	}
	for v := range uint64(4) {
		expect(t, n.ask(0, &Packet{Op: Write, Value: value(v)}), WriteReply, OK, v)
		expect(t, n.ask(0, &Packet{Op: Read}), ReadReply, OK, v)
	}
}

var places = map[string]string{"head": "s1", "middle": "s2", "tail": "s3"}

// TestFailover checks that the neighbours of a failed switch continue without it, and that clients
// need no notice.
func TestFailover(t *testing.T) {
	for place, gone := range places {
		t.Run(place, func(t *testing.T) {
			eachWidth(t, func(t *testing.T, bits int) {
				n := newNetwork(t, ring(4, 3), bits, 1, 1)
				expect(t, n.ask(3, &Packet{Op: Write, Value: value(1)}), WriteReply, OK, 1)
				n.fail(gone)
				expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 1)
				expect(t, n.ask(3, &Packet{Op: Write, Value: value(2)}), WriteReply, OK, 2)
				expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 2)
				expect(t, n.ask(3, cas(0, 2, 3)), CASReply, OK, 3)
				expect(t, n.ask(3, cas(0, 2, 4)), CASReply, CASFailed, 3)
				expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 3)
			})
		})
	}
}

// TestTwoGone checks that after two of three switches have failed, the remaining switch does all
// the work, whichever it is.
func TestTwoGone(t *testing.T) {
	for place, left := range places {
		t.Run(place, func(t *testing.T) {
			n := newNetwork(t, ring(4, 3), 128, 1, 1)
			host := 3
			if left == "s2" { // h4 has no route if only s2 is left
				host = 1
			}
			expect(t, n.ask(host, &Packet{Op: Write, Value: value(1)}), WriteReply, OK, 1)
			for _, gone := range []string{"s1", "s2", "s3"} {
				if gone != left {
					n.fail(gone)
				}
			}
			expect(t, n.ask(host, &Packet{Op: Read}), ReadReply, OK, 1)
			expect(t, n.ask(host, cas(0, 1, 2)), CASReply, OK, 2)
			expect(t, n.ask(host, &Packet{Op: Read}), ReadReply, OK, 2)
			if err := n.Fail(t.Context(), left); err == nil {
				t.Error("the last switch of the chain may go")
			}
		})
	}
}

// TestSession checks that the sequence numbers of a new head exceed all numbers of the old head,
// including numbers that no other switch knows.
func TestSession(t *testing.T) {
	n := newNetwork(t, ring(4, 3), 128, 1, 1)
	expect(t, n.ask(3, &Packet{Op: Write, Value: value(1)}), WriteReply, OK, 1)
	n.lose = func(at end) bool { return at.sw == 1 }
	for range 3 { // each write gets a number at the head, but reaches no other switch
		n.send(3, &Packet{Op: Write, Value: value(9)})
	}
	for n.step() {
	}
	n.lose = nil
	n.fail("s1")
	r := n.ask(3, &Packet{Op: Write, Value: value(2)})
	expect(t, r, WriteReply, OK, 2)
	if r.Seq.High>>32 != 1 {
		t.Errorf("the number is of session %d", r.Seq.High>>32)
	}
	expect(t, n.ask(2, &Packet{Op: Read}), ReadReply, OK, 2)
}

// TestFailedCAS checks that after a failed CAS, reads return the value with which the CAS was
// compared. This must hold even if the write of that value was lost after it left the head.
func TestFailedCAS(t *testing.T) {
	eachWidth(t, func(t *testing.T, bits int) {
		n := newNetwork(t, ring(4, 3), bits, 1, 1)
		expect(t, n.ask(3, &Packet{Op: Write, Value: value(1)}), WriteReply, OK, 1)
		lost := func(p *Packet) {
			n.lose = func(at end) bool { return at.sw == 1 && at.port == toHost+1 }
			n.send(3, p)
			for n.step() {
			}
			n.lose = nil
		}
		lost(&Packet{Op: Write, Value: value(2)})
		expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 1)
		expect(t, n.ask(3, cas(0, 1, 3)), CASReply, CASFailed, 2)
		expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 2)
		lost(&Packet{Op: Delete, Value: value(5)})
		expect(t, n.ask(3, cas(0, 2, 3)), CASReply, CASFailed, 5)
		expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, NotFound, 5)
	})
}

// TestLateWrite checks that a former head assigns no numbers to late writes.
func TestLateWrite(t *testing.T) {
	n := newNetwork(t, ring(4, 3), 128, 1, 1)
	n.fail("s1")
	n.send(3, &Packet{Op: Write, Value: value(1)})
	for range 2 { // the write passes s4 and s3, and is on the way to s2, the head
		n.step()
	}
	toHead := end{1, toHost + 3}
	late := n.queues[toHead]
	if len(late) != 1 {
		t.Fatalf("the write is not on its way to s2: %v", n.queues)
	}
	n.queues[toHead] = nil
	for _, a := range late {
		n.land(a)
	}
	n.start("s1")
	n.recover("s1", "")
	expect(t, n.ask(3, &Packet{Op: Write, Value: value(2)}), WriteReply, OK, 2)
	for _, a := range late {
		n.push(toHead, a)
	}
	for n.step() {
	}
	expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 2)
}

// TestReadsAtTheFormerTail checks that the head waits before it continues. It must wait until the
// READs in flight to the former tail have been answered.
func TestReadsAtTheFormerTail(t *testing.T) {
	n := newNetwork(t, ring(4, 3), 128, 1, 1)
	expect(t, n.ask(0, &Packet{Op: Write, Value: value(1)}), WriteReply, OK, 1)
	n.fail("s3")
	n.start("s3")
	n.begin(func(ctx context.Context) error {
		_, err := n.Recover(ctx, "s3", "")
		return err
	})
	for !n.plan.stopped[0] {
		n.step()
		n.control()
	}
	for n.step() {
	}
	n.send(0, &Packet{Op: Read})
	n.step() // the READ was processed at s1, and is in flight to s2
	toTail := end{1, toHost + 1}
	late := n.queues[toTail]
	if len(late) != 1 {
		t.Fatalf("the read is not on its way to s2: %v", n.queues)
	}
	n.queues[toTail] = nil
	for range 10_000 {
		n.step()
		n.control()
	}
	if !n.running {
		t.Error("the recovery did not wait for it")
	}
	n.land(late[0])
	n.push(toTail, late[0])
	for n.running {
		n.step()
		n.control()
	}
	check(t, n.failure)
	if got := n.inbox[0]; len(got) != 2 || number(got[1].Value) != 1 {
		t.Errorf("answers: %+v", got)
	}
}

// TestRecovery checks that the chain is complete after a failed switch returned, or another switch
// replaced it. Each switch must hold the written values, and reads must return them whichever
// switch fails next.
func TestRecovery(t *testing.T) {
	for place, gone := range places {
		for _, by := range []string{gone, "s4"} {
			t.Run(place+" by "+by, func(t *testing.T) {
				eachWidth(t, func(t *testing.T, bits int) {
					n := newNetwork(t, mesh(4, 3), bits, 5, 2)
					for k := range 4 { // only three of the four keys have been written
						n.ask(2, &Packet{Op: Write, Key: Key(k, 2), Value: value(uint64(10 + k))})
					}
					n.ask(2, &Packet{Op: Delete, Key: Key(3, 2)})
					n.fail(gone)
					host := 3
					if by == gone {
						n.start(gone)
					}
					expect(t, n.ask(host, &Packet{Op: Write, Key: Key(1, 2), Value: value(21)}), WriteReply, OK, 21)
					n.recover(gone, by)
					read := func() {
						t.Helper()
						for k, want := range []uint64{10, 21, 12} {
							expect(t, n.ask(host, &Packet{Op: Read, Key: Key(k, 2)}), ReadReply, OK, want)
						}
						expect(t, n.ask(host, &Packet{Op: Read, Key: Key(3, 2)}), ReadReply, NotFound, 0)
						expect(t, n.ask(host, &Packet{Op: Read, Key: Key(4, 2)}), ReadReply, NotFound, 0)
					}
					read()
					expect(t, n.ask(host, cas(Key(0, 2), 10, 30)), CASReply, OK, 30)
					for _, s := range []string{"s1", "s2", "s3", "s4"} {
						if s == by || s != gone && s != "s4" {
							if v := number([ValueBytes]byte(n.register(s, "objects"))); v != 30 {
								t.Errorf("%s holds %d", s, v)
							}
						}
					}
					expect(t, n.ask(host, cas(Key(0, 2), 30, 10)), CASReply, OK, 10)
					// Let each of the three switches fail in turn.
					for _, s := range []string{"s1", "s2", "s3"} {
						if s != gone {
							n.fail(s)
							read()
							n.start(s)
							n.recover(s, "")
							read()
						}
					}
					// The recovery must leave no table entries behind, except those that redirect
					// packets to the switch that now has the place.
					if at := n.plan.placeOf(n.topo.Switch(by)); len(n.plan.detours(at, common))+len(
						n.plan.detours(at, 0)) != map[bool]int{true: 0, false: 2}[by == gone] {
						t.Errorf("detours: %v", n.plan.detours(at, common))
					}
				})
			})
		}
	}
}

// TestRecoveryWraps checks a recovery with 16-bit sequence numbers. The source of the copy may have
// any number.
func TestRecoveryWraps(t *testing.T) {
	for _, seq := range []uint16{0, 1, 0x7fff, 0x8000, 0x9000, 0xffff} {
		n := newNetwork(t, ring(4, 2), 16, 1, 1)
		n.ask(0, &Packet{Op: Write, Value: value(7)})
		for _, s := range []string{"s1", "s2"} {
			check(t, n.node(s).p.WriteRegister("NetchainIngress.replica.sequence", 0, binary.BigEndian.AppendUint16(nil, seq)))
		}
		n.fail("s2")
		n.start("s2")
		n.recover("s2", "")
		expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 7)
		if got := binary.BigEndian.Uint16(n.register("s2", "sequence")); got != seq {
			t.Errorf("the number is %#x, not %#x", got, seq)
		}
		expect(t, n.ask(3, &Packet{Op: Write, Value: value(8)}), WriteReply, OK, 8)
		expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 8)
	}
}

// TestRecoveryFails checks that if the switch fails again during its recovery, the chain continues
// as before, and the next recovery can succeed.
func TestRecoveryFails(t *testing.T) {
	for place, gone := range places {
		t.Run(place, func(t *testing.T) {
			for after := range 400 {
				n := newNetwork(t, ring(4, 3), 128, 4, 2)
				expect(t, n.ask(3, &Packet{Op: Write, Value: value(1)}), WriteReply, OK, 1)
				n.fail(gone)
				n.start(gone)
				n.begin(func(ctx context.Context) error {
					_, err := n.Recover(ctx, gone, "")
					return err
				})
				for range 10 * after {
					n.step()
					n.control()
				}
				if !n.running {
					return // the switch has failed at every moment of the recovery
				}
				n.kill(gone)
				for n.running {
					n.step()
					n.control()
				}
				if n.failure == nil { // the recovery ended before the switch failed
					n.fail(gone)
				}
				expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 1)
				expect(t, n.ask(3, &Packet{Op: Write, Value: value(2)}), WriteReply, OK, 2)
				n.start(gone)
				n.recover(gone, "")
				expect(t, n.ask(3, cas(0, 2, 3)), CASReply, OK, 3)
				expect(t, n.ask(3, &Packet{Op: Read}), ReadReply, OK, 3)
			}
			t.Error("the recovery does not come to an end")
		})
	}
}
