package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// answerWait is how long probe waits for an answer before the answer counts as lost.
const answerWait = 100 * time.Millisecond

// between is the time between two requests. The rate is much lower than a pod's limit, so the limit
// does not affect the measurement.
const between = time.Millisecond

// probe reads or writes a key repeatedly, one request after the other, and prints the latency of
// the answers. It needs only a UDP socket.
func probe(args []string) error {
	var service netip.Addr
	var key, value string
	var bits int
	var seconds float64
	f := flag.NewFlagSet("probe", flag.ContinueOnError)
	f.TextVar(&service, "service", netip.Addr{}, "the chain's service `ADDRESS`")
	f.StringVar(&key, "key", "0", "`KEY_ID`")
	f.StringVar(&value, "write", "", "write this `VALUE` once before")
	f.IntVar(&bits, "value-bits", 128, "width of values")
	f.Float64Var(&seconds, "seconds", 0, "length of the run; 0: one request")
	if err := f.Parse(args); err != nil {
		return err
	}
	id, err := wire.ParseKey(key)
	if err != nil {
		return err
	}
	c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: service.AsSlice(), Port: wire.Port})
	if err != nil {
		return err
	}
	defer c.Close()
	profile, request := wire.Profile(bits), uint32(0)
	ask := func(w wire.Packet) (*wire.Packet, error) {
		request++
		w.Key, w.Request = id, request
		b, err := w.Marshal(profile)
		if err != nil {
			return nil, err
		}
		if _, err := c.Write(b); err != nil {
			return nil, err
		}
		if err := c.SetReadDeadline(time.Now().Add(answerWait)); err != nil {
			return nil, err
		}
		for answer := make([]byte, 4096); ; {
			n, err := c.Read(answer)
			if err != nil {
				return nil, err
			}
			var p wire.Packet
			if p.Unmarshal(answer[:n], profile) == nil && p.Request == request {
				return &p, nil
			}
		}
	}
	if value != "" {
		p, err := ask(wire.Packet{Op: wire.Write, Value: []byte(value)})
		if err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		fmt.Printf("written: %v\n", p.Status)
	}
	var took []time.Duration
	lost, last := 0, "nothing"
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); len(took)+lost == 0 ||
		time.Now().Before(end); {
		time.Sleep(between)
		begin := time.Now()
		p, err := ask(wire.Packet{Op: wire.Read})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			lost++
		case err != nil:
			return fmt.Errorf("reading: %w", err)
		default:
			took, last = append(took, time.Since(begin)), fmt.Sprintf("%v %q", p.Status, p.Value)
		}
	}
	slices.Sort(took)
	at := func(share float64) float64 {
		if len(took) == 0 {
			return 0
		}
		return float64(took[min(len(took)-1, int(share*float64(len(took))))]) / float64(time.Millisecond)
	}
	fmt.Printf("answers %d, lost %d, median %.3f ms, p99 %.3f ms, longest %.3f ms, last %s\n", len(took), lost, at(0.5), at(0.99), at(1), last)
	return nil
}
