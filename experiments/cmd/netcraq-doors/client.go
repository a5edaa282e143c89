package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fxamacker/cbor/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/experiments/doors"
)

// load is a client that generates load on one of the servers (a "door").
type load struct {
	door, address string
	seconds       float64
	warm          int
}

// report is the result of a load, in the same form as the results of loads in other languages.
type report struct {
	Calls     int     `json:"calls"`
	Seconds   float64 `json:"seconds"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	CPUMicros float64 `json:"cpu_us"` // processor time of this process for all calls, in microseconds
	Version   string  `json:"version"`
}

func (l load) run(ctx context.Context, in io.Reader, out io.Writer) error {
	get, version, err := l.open(ctx)
	if err != nil {
		return err
	}
	for range l.warm {
		if err := get(); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "ready")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err
	}
	took := make([]time.Duration, 0, 1<<20)
	cpu, began := processTime(), time.Now()
	end := began.Add(time.Duration(l.seconds * float64(time.Second)))
	for now := began; now.Before(end); {
		if err := get(); err != nil {
			return err
		}
		then := now
		now = time.Now()
		took = append(took, now.Sub(then))
	}
	return json.NewEncoder(out).Encode(newReport(took, time.Since(began), processTime()-cpu, version))
}

// newReport makes a report of calls that took these durations.
func newReport(took []time.Duration, all time.Duration, cpu float64, version string) report {
	slices.Sort(took)
	return report{Calls: len(took), Seconds: all.Seconds(), P50: micros(took[len(took)/2]),
		P99: micros(took[len(took)*99/100]), CPUMicros: cpu, Version: version}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// processTime returns the processor time of this process, in microseconds.
func processTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}

// open connects, and returns a function that makes a call and checks its answer.
func (l load) open(ctx context.Context) (get func() error, version string, err error) {
	switch l.door {
	case "echo":
		return l.echo()
	case "json":
		c, err := node.Connect(ctx, node.Config{Socket: l.address})
		if err != nil {
			return nil, "", err
		}
		return func() error {
			item, err := c.Get(background, key)
			return check(len(item.Value), err)
		}, "client/node", nil
	case "compact":
		return l.compact()
	case "grpc":
		return l.grpc()
	}
	return nil, "", fmt.Errorf("there is no door %q", l.door)
}

func check(size int, err error) error {
	if err == nil && size != valueSize {
		err = fmt.Errorf("a value of %d bytes, not %d", size, valueSize)
	}
	return err
}

func (l load) dial() (net.Conn, error) {
	if address, ok := strings.CutPrefix(l.address, "tcp://"); ok {
		return net.Dial("tcp", address)
	}
	return net.Dial("unix", l.address)
}

func (l load) echo() (func() error, string, error) {
	c, err := l.dial()
	if err != nil {
		return nil, "", err
	}
	b := make([]byte, echoSize)
	return func() error {
		if _, err := c.Write(b); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b)
		return err
	}, "net", nil
}

func (l load) grpc() (func() error, string, error) {
	target := "unix:" + l.address
	if address, ok := strings.CutPrefix(l.address, "tcp://"); ok {
		target = address
	}
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, "", err
	}
	return func() error {
		// The call has a timeout, as in the node API's libraries.
		ctx, cancel := context.WithTimeout(background, nodeapi.DefaultTimeoutMillis*time.Millisecond)
		defer cancel()
		var item doors.Item
		err := c.Invoke(ctx, "/netcraq.doors.Doors/Get", &doors.GetRequest{Namespace: namespace, Key: key}, &item)
		return check(len(item.Value), err)
	}, "grpc-go " + grpc.Version, nil
}

// compact returns a minimal client of the compact framing, for reads by one caller.
func (l load) compact() (func() error, string, error) {
	c, err := l.dial()
	if err != nil {
		return nil, "", err
	}
	if _, err := io.WriteString(c, nodeapi.Preface); err != nil {
		return nil, "", err
	}
	type request struct {
		_                   struct{} `cbor:",toarray"`
		ID                  uint64
		Func                string
		Data                nodeapi.GetData
		Timeout, Once, Done uint64
	}
	type response struct {
		_     struct{} `cbor:",toarray"`
		ID    uint64
		Data  *nodeapi.Item
		Error *nodeapi.Error
		More  bool
	}
	in, out, id := bufio.NewReaderSize(c, 4<<10), []byte(nil), uint64(0)
	return func() error {
		id++
		body, err := cbor.Marshal(request{ID: id, Func: nodeapi.FuncGet,
			Data: nodeapi.GetData{Key: nodeapi.Key{Key: key}}})
		if err != nil {
			return err
		}
		out = append(binary.BigEndian.AppendUint32(out[:0], uint32(len(body))), body...)
		if _, err := c.Write(out); err != nil {
			return err
		}
		head, err := in.Peek(4)
		if err != nil {
			return err
		}
		size := 4 + int(binary.BigEndian.Uint32(head))
		message, err := in.Peek(size)
		if err != nil {
			return err
		}
		var r response
		if err := cbor.Unmarshal(message[4:], &r); err != nil {
			return err
		}
		if r.Error != nil {
			return r.Error
		}
		if r.ID != id || r.Data == nil || r.Data.Value == nil {
			return fmt.Errorf("an answer that makes no sense: %+v", r)
		}
		_, _ = in.Discard(size)
		return check(len(*r.Data.Value), nil)
	}, "fxamacker/cbor, a client of its own", nil
}
