package server

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/store"
)

const (
	clientA = "0123456789abcdef0123456789abcdef"
	clientB = "ffffffffffffffffffffffffffffffff"
)

func (l *line) hello(client string, known bool) {
	l.t.Helper()
	l.send(fmt.Sprintf(`{"id":1,"func":"hello","data":{"client":"%s"}}`, client))
	l.expectPart(fmt.Sprintf(`"known":%v`, known))
}

// TestOnce checks that a write that is repeated, over any connection, is executed once and gets the
// first answer.
func TestOnce(t *testing.T) {
	_, path := start(t, Config{})
	a := dial(t, path)
	a.hello(clientA, false)
	one := `{"id":2,"once":1,"func":"increment","data":{"key":"n"}}`
	a.ask(one, `{"id":2,"data":{"number":1,"value":"1","version":"1.1"}}`)
	a.Close()
	b := dial(t, path)
	b.hello(clientA, true)
	b.ask(`{"id":9,"once":1,"func":"increment","data":{ "key" : "n"}}`, `{"id":9,"data":{"number":1,"value":"1","version":"1.1"}}`)
	b.ask(`{"id":9,"once":2,"func":"increment","data":{"key":"n"}}`, `{"id":9,"data":{"number":2,"value":"2","version":"1.2"}}`)
	b.ask(`{"id":9,"once":2,"func":"increment","data":{"key":"m"}}`,
		`{"id":9,"error":{"code":"invalid_argument","message":"once 2 was another request"}}`)
	// The table also keeps refusals as answers.
	for range 2 {
		b.send(`{"id":9,"once":3,"func":"put","data":{"key":"k","value":"` + strings.Repeat("v", 2000) + `"}}`)
		b.expectPart(`"too_large"`)
	}
	// Even a write whose answer the client no longer needs is not executed again.
	b.ask(`{"id":9,"once":4,"done":3,"func":"increment","data":{"key":"n"}}`,
		`{"id":9,"data":{"number":3,"value":"3","version":"1.3"}}`)
	b.send(one)
	b.expectPart(`{"id":2,"error":{"code":"outcome_unknown"`)
	// Another client may use the same numbers.
	c := dial(t, path)
	c.hello(clientB, false)
	c.ask(one, `{"id":2,"data":{"number":4,"value":"4","version":"1.4"}}`)
}

// TestOnceUnderWay checks that a write continues after its connection has ended, and that a
// repetition of the write waits for it.
func TestOnceUnderWay(t *testing.T) {
	slow := &slowStore{Store: store.NewMemory(100), hold: make(chan struct{})}
	s, path := start(t, Config{Store: slow})
	write := `{"id":2,"once":1,"func":"put","timeoutMs":60000,"data":{"key":"slow","value":"v"}}`
	a := dial(t, path)
	a.hello(clientA, false)
	a.send(write)
	waiting := func(n int32) {
		t.Helper()
		poll.Until(t, soon, fmt.Sprint(n, " writes wait in the store"), func() bool { return slow.waiting.Load() == n })
	}
	waiting(1)
	a.Close()
	poll.Until(t, soon, "the connection has ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 0
	})
	waiting(1) // the write continues in the store
	b := dial(t, path)
	b.hello(clientA, true)
	b.send(write)
	b.ask(`{"id":3,"func":"get","data":{"key":"k"}}`, `{"id":3,"data":{"key":"k","found":false,"version":"0.0"}}`)
	waiting(1) // the repetition does not write again
	close(slow.hold)
	b.expect(`{"id":2,"data":{"version":"1.1"}}`)
}

// TestOnceBounds checks that the table stays within its limits. A request whose answer was dropped
// must never be executed again, but must get CodeOutcomeUnknown.
func TestOnceBounds(t *testing.T) {
	s, path := start(t, Config{Limits: Limits{OnceEach: 8, OnceClients: 2, onceKept: 50 * time.Millisecond}})
	a := dial(t, path)
	a.hello(clientA, false)
	for n := 1; n <= 20; n++ {
		a.send(fmt.Sprintf(`{"id":2,"once":%d,"func":"increment","data":{"key":"n"}}`, n))
		a.expectPart(fmt.Sprintf(`"number":%d,`, n))
	}
	a.send(`{"id":2,"once":1,"func":"increment","data":{"key":"n"}}`)
	a.expectPart(`"outcome_unknown"`)
	a.send(`{"id":2,"once":20,"func":"increment","data":{"key":"n"}}`)
	a.expectPart(`"number":20`)
	s.once.mu.Lock()
	for _, c := range s.once.clients {
		if len(c.answers) > 8 {
			t.Errorf("%d answers are kept", len(c.answers))
		}
	}
	s.once.mu.Unlock()
	b := dial(t, path)
	b.hello(clientB, false)
	c := dial(t, path)
	c.send(`{"id":1,"func":"hello","data":{"client":"` + strings.Repeat("c", 32) + `"}}`)
	c.expectPart(`{"id":1,"error":{"code":"quota_exceeded"`)
	a.Close()
	b.Close()
	poll.Until(t, soon, "clients that have gone are forgotten", func() bool {
		s.once.mu.Lock()
		defer s.once.mu.Unlock()
		return len(s.once.clients) == 0 && s.once.bytes == 0
	})
	c.hello(clientA, false)
}

// TestOnceBytes checks that the bytes of all clients together are limited. The answers of
// disconnected clients must be dropped first.
func TestOnceBytes(t *testing.T) {
	s, path := start(t, Config{Limits: Limits{OnceBytes: 2000}})
	a := dial(t, path)
	a.hello(clientA, false)
	a.send(`{"id":2,"once":1,"func":"cas","data":{"key":"k","version":"0.0","value":"` + strings.Repeat("v", 1000) + `"}}`)
	a.expectPart(`"swapped":true`)
	a.Close()
	b := dial(t, path)
	b.hello(clientB, false)
	poll.Until(t, soon, "the first has gone", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 1
	})
	for n := 1; n <= 20; n++ {
		b.send(fmt.Sprintf(`{"id":2,"once":%d,"func":"increment","data":{"key":"n"}}`, n))
		b.expectPart(fmt.Sprintf(`"number":%d,`, n))
	}
	s.once.mu.Lock()
	if s.once.bytes > 2000 || len(s.once.clients) != 1 {
		t.Errorf("%d bytes of %d clients", s.once.bytes, len(s.once.clients))
	}
	s.once.mu.Unlock()
	b.send(`{"id":2,"once":1,"func":"increment","data":{"key":"n"}}`)
	b.expectPart(`"outcome_unknown"`)
}

// TestOnceWaits checks a client that waits for a lock when its connection ends. If the client
// repeats the request, it must wait again, because the cancellation of the first request is not an
// answer.
func TestOnceWaits(t *testing.T) {
	s, path := start(t, Config{})
	holder := dial(t, path)
	holder.send(`{"id":1,"func":"lock","data":{"name":"x"}}`)
	holder.expectPart(`"held":true`)
	leases := dial(t, path)
	leases.send(`{"id":1,"func":"grant","data":{"ttlMs":60000}}`)
	lease := regexp.MustCompile(`[0-9a-f]{12}`).FindString(leases.receive())
	wait := fmt.Sprintf(`{"id":2,"once":1,"timeoutMs":60000,"func":"lock","data":{"name":"x","lease":"%s"}}`, lease)
	under := func(n int, what string) {
		t.Helper()
		poll.Until(t, soon, what, func() bool {
			s.once.mu.Lock()
			defer s.once.mu.Unlock()
			waiting := 0
			for _, c := range s.once.clients {
				waiting += len(c.answers)
			}
			return waiting == n
		})
	}
	for i := range 2 {
		l := dial(t, path)
		l.hello(clientA, i > 0)
		l.send(wait)
		under(1, "the lock is waited for")
		l.Close()
		under(0, "nobody waits for the lock")
	}
	l := dial(t, path)
	l.hello(clientA, true)
	l.send(wait)
	under(1, "the lock is waited for")
	holder.Close() // the holder's lease ends with its connection
	l.expectPart(`"held":true`)
	l.send(wait)
	l.expectPart(`"held":true`) // this must be the same answer as the first time
}

// TestOnceHeldNoMore checks a request that acquired a lock, which is no longer held. The lock was
// released, or its lease ended with the connection of the request. A repetition must not report
// that the lock is held.
func TestOnceHeldNoMore(t *testing.T) {
	s, path := start(t, Config{})
	leases := dial(t, path)
	grant := func() string {
		t.Helper()
		leases.send(`{"id":1,"func":"grant","data":{"ttlMs":60000}}`)
		return regexp.MustCompile(`[0-9a-f]{12}`).FindString(leases.receive())
	}
	client := 0
	first := func(request, part string) (*line, string) {
		t.Helper()
		client++
		name := fmt.Sprintf("%032x", client)
		l := dial(t, path)
		l.hello(name, false)
		l.send(request)
		answer := l.receive()
		if !strings.Contains(answer, part) {
			t.Fatalf("%s: %s", request, answer)
		}
		l.send(request) // over the same connection the lock is still held
		if again := l.receive(); again != answer {
			t.Errorf("%s: %s; at first it was %s", request, again, answer)
		}
		return l, name
	}
	again := func(name, request, part string) {
		t.Helper()
		l := dial(t, path)
		l.hello(name, true)
		l.send(request)
		l.expectPart(part)
		l.Close()
	}
	for what, data := range map[string]string{
		"lock": `"name":"x"`, "campaign": `"name":"x","value":"me"`, "acquire": `"name":"x","permits":2`,
		"registerService": `"service":"x","instance":"i","address":"a:1"`,
	} {
		held := `"lease"`
		// The lease of the connection ends with the connection, and no other connection can get it.
		own := fmt.Sprintf(`{"id":2,"once":1,"func":"%s","data":{%s}}`, what, data)
		l, name := first(own, held)
		again(name, own, `{"id":2,"error":{"code":"lease_gone"`)
		l.Close()
		poll.Until(t, soon, "the connection has ended", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.conns) == 1
		})
		again(name, own, `{"id":2,"error":{"code":"lease_gone"`)
		again(name, strings.Replace(own, `"once":1`, `"once":2`, 1), held)
		// A granted lease outlives its connection until it is revoked.
		lease := grant()
		granted := fmt.Sprintf(`{"id":2,"once":1,"timeoutMs":60000,"func":"%s","data":{%s,"lease":"%s"}}`, what, data, lease)
		l, name = first(granted, held)
		l.Close()
		again(name, granted, held)
		leases.ask(`{"id":3,"func":"revoke","data":{"lease":"`+lease+`"}}`, `{"id":3,"data":{}}`)
		again(name, granted, `{"id":2,"error":{"code":"lease_gone"`)
	}
	lease := grant()
	for what, back := range map[string]string{"lock": "unlock", "campaign": "resign", "acquire": "release"} {
		request := fmt.Sprintf(`{"id":2,"once":1,"func":"%s","data":{"name":"y","permits":1,"lease":"%s"}}`, what, lease)
		l, name := first(request, `"held":true`)
		l.send(request)
		token := regexp.MustCompile(`"token":"(\d+)"`).FindStringSubmatch(l.receive())[1]
		leases.ask(fmt.Sprintf(`{"id":3,"func":"%s","data":{"name":"y","token":"%s"}}`, back, token), `{"id":3,"data":{}}`)
		again(name, request, `{"id":2,"error":{"code":"not_held"`)
		l.Close()
	}
	request := `{"id":2,"once":1,"func":"grant","data":{"ttlMs":60000}}`
	l, name := first(request, `"lease"`)
	l.send(request)
	leases.ask(`{"id":3,"func":"revoke","data":{"lease":"`+regexp.MustCompile(`[0-9a-f]{12}`).FindString(l.receive())+`"}}`,
		`{"id":3,"data":{}}`)
	again(name, request, `{"id":2,"error":{"code":"lease_gone"`)
}
