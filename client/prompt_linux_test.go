package client

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/refchain"
)

// TestPrompt checks that prompt receives answers that are available after sending, and no more
// answers than there were requests. If there never are any answers, prompt stops trying, except for
// occasional tries.
func TestPrompt(t *testing.T) {
	s, err := openSocket(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0), wire.Profile128)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	peer, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(s.local()))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	come := func(packets ...string) {
		t.Helper()
		// Each packet is in the peer's socket when the system call ends.
		for _, p := range packets {
			if _, err := peer.Write([]byte(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	taken := func(sent int) (all []string) {
		t.Helper()
		for _, r := range s.prompt.answers(sent) {
			if r.from != unmap(peer.LocalAddr().(*net.UDPAddr).AddrPort()) {
				t.Errorf("a packet is from %v", r.from)
			}
			all = append(all, string(r.payload))
		}
		return all
	}
	come("a", "b", "c")
	if all := taken(2); len(all) != 2 || all[0] != "a" || all[1] != "b" {
		t.Errorf("after two were sent %q were taken", all)
	}
	if all := taken(9); len(all) != 1 || all[0] != "c" {
		t.Errorf("then %q were taken", all)
	}
	for range promptPatience {
		if !s.prompt.hopeful() {
			t.Fatal("it is given up too soon")
		}
		taken(1)
	}
	come("d")
	for range promptEvery {
		if s.prompt.hopeful() || taken(1) != nil {
			t.Fatal("it is looked for packets that have never been there")
		}
	}
	if all := taken(1); len(all) != 1 || all[0] != "d" || !s.prompt.hopeful() {
		t.Errorf("after %d sends %q were taken", promptEvery, all)
	}
	taken(1)
	if !s.prompt.hopeful() {
		t.Error("one that was not there counts like many")
	}
}

// TestNow checks that Now abandons a request that is not answered at once, and that the request
// leaves nothing behind. An answer that Now returns equals the answer of Get.
func TestNow(t *testing.T) {
	chain, c := start(t, refchain.Config{}, 1, nil)
	put, err := c.Put(within(t, 5*time.Second), key(1), []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	read := Request{Op: wire.Read, Key: key(1)}
	for range 3 * promptPatience { // The scheduler decides whether Now gets an answer.
		if r, ok := c.Now(read); ok && (r.Err != nil || string(r.Value) != "a" || r.Version != put.Version) {
			t.Fatalf("%q, version %v: %v", r.Value, r.Version, r.Err)
		}
	}
	for i := range chain.Addresses() {
		chain.SetDown(i, true)
	}
	for range 3 * promptEvery {
		if r, ok := c.Now(read); ok {
			t.Fatalf("nobody is there: %+v", r)
		}
		c.Do(t.Context(), Request{Op: wire.Read, Key: key(1), To: chain.Addresses()}, func(Result) {})
	}
	c.mu.Lock()
	c.machine.AbortAll(c.now(), errors.New("the test is over"))
	c.pump()
	left := c.machine.Outstanding()
	c.mu.Unlock()
	if s := c.Stats(); left != 0 || s.Started != s.Completed {
		t.Errorf("%d calls are left: %+v", left, s)
	}
}
