package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	doorSocket = "/run/netcraq/node.sock"
	// besiegers is the number of connections for each kind of attack.
	besiegers = 4
	// hoarded is the number of connections that one pod tries to hold. Its namespace allows fewer.
	hoarded = 3000
	// flooded is how many requests a flooding connection may have without an answer.
	flooded = 256
)

// siege records the answers that a hostile pod gets from the node API.
type siege struct {
	other string // the namespace whose keys the pod tries to read
	until time.Time

	requests, forged, connections, turnedAway, cutOff atomic.Int64

	mu       sync.Mutex
	answers  map[string]int // answers to permitted requests, by code
	refusals map[string]int // answers to forbidden requests, by code
	breaches []string
}

// besiege floods the socket with requests and connections, sends malformed frames, reads no
// answers, and tries every way to reach another namespace's keys.
func besiege(args []string) error {
	if len(args) != 2 {
		return errors.New("besiege takes a namespace and for how long")
	}
	long, err := seconds(args[1])
	if err != nil {
		return err
	}
	s := &siege{other: args[0], until: time.Now().Add(long), answers: map[string]int{}, refusals: map[string]int{}}
	var all sync.WaitGroup
	all.Go(s.hoard)
	for range besiegers {
		all.Go(s.flood)
		all.Go(s.forge)
		all.Go(s.trespass)
		all.Go(s.neverRead)
	}
	all.Wait()
	say(map[string]any{"requests": s.requests.Load(), "forged": s.forged.Load(), "connections": s.connections.Load(),
		"turnedAway": s.turnedAway.Load(), "cutOff": s.cutOff.Load(), "answers": s.answers, "refusals": s.refusals,
		"breaches": s.breaches})
	return nil
}

func (s *siege) over() bool { return time.Now().After(s.until) }

// dial connects, and retries if the server rejects the connection. It returns nil when the siege is
// over.
func (s *siege) dial() net.Conn {
	for !s.over() {
		nc, err := net.DialTimeout("unix", doorSocket, time.Second)
		if err == nil {
			_ = nc.SetDeadline(s.until.Add(time.Second))
			return nc
		}
		s.turnedAway.Add(1)
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// answer has the fields of an answer that the siege needs.
type answer struct {
	ID    int64
	Data  json.RawMessage
	Error *struct{ Code, Message string }
}

func (a *answer) code() string {
	if a.Error != nil {
		return a.Error.Code
	}
	return "ok"
}

// flood sends as many permitted requests as it can.
func (s *siege) flood() {
	for !s.over() {
		nc := s.dial()
		if nc == nil {
			return
		}
		room := make(chan struct{}, flooded)
		go func() {
			out := bufio.NewWriter(nc)
			for id := int64(1); !s.over(); id++ {
				room <- struct{}{}
				if _, err := fmt.Fprintf(out, `{"id":%d,"func":"get","data":{"key":"flood"}}`+"\n", id); err != nil {
					return
				}
				if len(room) == cap(room) || id%32 == 0 {
					if out.Flush() != nil {
						return
					}
				}
				s.requests.Add(1)
			}
			nc.Close()
		}()
		in := bufio.NewReader(nc)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				break
			}
			var a answer
			if json.Unmarshal(line, &a) != nil || a.ID == 0 {
				// the server has rejected the connection
				s.count(s.answers, a.code())
				break
			}
			s.count(s.answers, a.code())
			<-room
		}
		nc.Close()
		for len(room) > 0 { // let the waiting senders continue, which then fail
			<-room
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *siege) count(what map[string]int, code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what[code]++
}

// hoard opens many connections and keeps them open.
func (s *siege) hoard() {
	var kept []net.Conn
	defer func() {
		for _, nc := range kept {
			nc.Close()
		}
	}()
	for !s.over() && len(kept) < hoarded {
		nc := s.dial()
		if nc == nil {
			return
		}
		kept = append(kept, nc)
		_ = nc.SetReadDeadline(time.Now().Add(time.Millisecond))
		if n, err := nc.Read(make([]byte, 512)); n > 0 || errors.Is(err, io.EOF) {
			s.turnedAway.Add(1)
			continue
		}
		s.connections.Add(1)
	}
	time.Sleep(time.Until(s.until))
}

var compact = []byte("\x00NC1")

// frames returns messages that no client sends.
var frames = []func() []byte{
	func() []byte { return []byte("GET /v1/chains HTTP/1.1\r\nHost: localhost\r\n\r\n") },
	func() []byte { return []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") },
	func() []byte { return bytes.Repeat([]byte("{"), 300_000) },
	func() []byte { return []byte(`{"id":1,"func":"get","data":` + strings.Repeat(`{"key":`, 50_000)) },
	func() []byte { return []byte(`{"id":1,"func":"ping"}` + "\n" + `{"id":1,"id":2,"func":"ping"}` + "\n") },
	func() []byte {
		return []byte(`{"id":-1,"func":"ping"}` + "\n" + `{"id":9007199254740993,"func":"ping"}` + "\n")
	},
	func() []byte { return []byte(`{"id":1,"func":"put","data":{"key":"~lock/a","value":"x"}}` + "\n") },
	func() []byte { return []byte(`{"id":1,"func":"get","data":{"key":"` + "\xff\xfe" + `"}}` + "\n") },
	func() []byte { return append(bytes.Clone(compact), 0xff, 0xff, 0xff, 0xff) },
	func() []byte { return append(bytes.Clone(compact), 0, 0, 0, 0) },
	// an array that does not end
	func() []byte { return framed(0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) },
	// deeply nested arrays
	func() []byte { return framed(bytes.Repeat([]byte{0x81}, 60_000)...) },
	func() []byte { return framed(noise(200)...) },
	func() []byte { return noise(4000) },
	func() []byte { return noise(1) },
}

func framed(body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(bytes.Clone(compact), uint32(len(body))), body...)
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// forge sends the messages of frames, whole and truncated, each on a new connection.
func (s *siege) forge() {
	for !s.over() {
		nc := s.dial()
		if nc == nil {
			return
		}
		b := frames[rand.N(len(frames))]()
		if rand.N(3) == 0 {
			b = b[:rand.N(len(b)+1)]
		}
		_, _ = nc.Write(b)
		s.forged.Add(1)
		_ = nc.SetReadDeadline(time.Now().Add(time.Duration(rand.N(20)) * time.Millisecond))
		_, _ = io.CopyN(io.Discard, nc, 4096)
		nc.Close()
	}
}

// trespass requests another namespace's keys. Any answer other than a refusal is a breach.
func (s *siege) trespass() {
	asks := []string{
		`"func":"get","data":{"key":"color","namespace":"%s"}`,
		`"func":"get","data":{"key":"color","eventual":true,"namespace":"%s"}`,
		`"func":"put","data":{"key":"color","value":"forged","namespace":"%s"}`,
		`"func":"cas","data":{"key":"color","value":"forged","version":"0.0","namespace":"%s"}`,
		`"func":"delete","data":{"key":"color","namespace":"%s"}`,
		`"func":"increment","data":{"key":"count","namespace":"%s"}`,
		`"func":"watch","data":{"prefix":"","namespace":"%s"}`,
		`"func":"watch","data":{"keys":["color"],"namespace":"%s"}`,
		`"func":"grant","data":{"ttlMs":1000,"namespace":"%s"}`,
		`"func":"lock","data":{"name":"leader","waitMs":0,"namespace":"%s"}`,
		`"func":"unlock","data":{"name":"leader","token":"1","namespace":"%s"}`,
		`"func":"campaign","data":{"name":"writer","value":"me","waitMs":0,"namespace":"%s"}`,
		`"func":"leader","data":{"name":"writer","namespace":"%s"}`,
		`"func":"acquire","data":{"name":"uploads","permits":3,"waitMs":0,"namespace":"%s"}`,
		`"func":"registerService","data":{"service":"orders","address":"10.0.0.7:80","namespace":"%s"}`,
		`"func":"deregisterService","data":{"service":"orders","instance":"a","namespace":"%s"}`,
		`"func":"getService","data":{"service":"orders","namespace":"%s"}`,
		`"func":"watchService","data":{"service":"orders","namespace":"%s"}`,
	}
	for !s.over() {
		nc := s.dial()
		if nc == nil {
			return
		}
		in := bufio.NewReader(nc)
		for id := int64(1); !s.over(); id++ {
			ask := fmt.Sprintf(asks[rand.N(len(asks))], s.other)
			if _, err := fmt.Fprintf(nc, `{"id":%d,%s}`+"\n", id, ask); err != nil {
				break
			}
			line, err := in.ReadBytes('\n')
			if err != nil {
				break
			}
			var a answer
			if json.Unmarshal(line, &a) != nil || a.ID == 0 {
				break // the server has rejected the connection
			}
			s.count(s.refusals, a.code())
			if a.Error == nil || a.Error.Code == "permission_denied" && !strings.Contains(a.Error.Message, "(rule roles)") {
				s.mu.Lock()
				s.breaches = append(s.breaches, fmt.Sprintf("%s: %.200s", ask, line))
				s.mu.Unlock()
			}
			time.Sleep(time.Millisecond)
		}
		nc.Close()
	}
}

// neverRead sends requests and reads no answers, until the server closes the connection.
func (s *siege) neverRead() {
	for !s.over() {
		nc := s.dial()
		if nc == nil {
			return
		}
		many := strings.Repeat(`"flood",`, 255)
		for id := 1; !s.over(); id++ {
			if _, err := fmt.Fprintf(nc, `{"id":%d,"func":"getMany","data":{"keys":[%s"flood"]}}`+"\n", id, many); err != nil {
				s.cutOff.Add(1)
				break
			}
		}
		nc.Close()
	}
}
