package p4rtserver

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/userspace"
)

// boundedServer serves P4Runtime on the loopback interface. It admits at most most connections. Its
// log is in file.
func boundedServer(t *testing.T, most int) (c *Connections, address, file string) {
	t.Helper()
	dev, err := userspace.New(userspace.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "log")
	log, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	c = NewConnections(most, slog.New(slog.NewTextHandler(log, nil)))
	gs := grpc.NewServer(c.ServerOptions(ServerOptions()...)...)
	New(dev, Options{Log: slog.New(slog.DiscardHandler)}).Register(gs)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- gs.Serve(c.Listen(l)) }()
	t.Cleanup(func() {
		gs.Stop()
		<-ended
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, l.Addr().String(), file
}

// control opens a stream as a controller does. It returns an error if the server refuses the
// stream.
func control(t *testing.T, address string, election uint64) (p4v1.P4Runtime_StreamChannelClient,
	func(), error) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	end := func() { cancel(); _ = conn.Close() }
	t.Cleanup(end)
	stream, err := p4v1.NewP4RuntimeClient(conn).StreamChannel(ctx)
	if err != nil {
		return nil, end, err
	}
	return stream, end, arbitrate(stream, election)
}

func arbitrate(stream p4v1.P4Runtime_StreamChannelClient, election uint64) error {
	_ = stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{ElectionId: &p4v1.Uint128{Low: election}}}})
	_, err := stream.Recv()
	return err
}

func (c *Connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// TestIdleConnections opens hundreds of connections that send nothing. The connected controller
// must stay connected, the next controller must be admitted, and the limit must never be exceeded.
func TestIdleConnections(t *testing.T) {
	const most = 5
	c, address, file := boundedServer(t, most)
	first, _, err := control(t, address, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		idle, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
		if n := c.count(); n > most {
			t.Fatalf("there are %d connections", n)
		}
	}
	if _, _, err := control(t, address, 2); err != nil {
		t.Errorf("a controller is kept out: %v", err)
	}
	if err := arbitrate(first, 3); err != nil {
		t.Errorf("the controller that was there first is gone: %v", err)
	}
	said, err := os.ReadFile(file)
	if n := strings.Count(string(said), "--max-connections"); n != 1 {
		t.Errorf("the log was told %d times (%v):\n%s", n, err, said)
	}
}

// TestBusyConnections fills the limit with connections that have running calls. The server must
// refuse the next connection, with the reason, until a call ends.
func TestBusyConnections(t *testing.T) {
	const most = 3
	c, address, _ := boundedServer(t, most)
	var ends []func()
	for i := range most {
		_, end, err := control(t, address, uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	for range 2 * maxRefusals { // the server closes most of these connections without an answer
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	time.Sleep(refusalTime + 100*time.Millisecond)
	_, _, err := control(t, address, 9)
	if status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "--max-connections") {
		t.Errorf("one too many is told: %v", err)
	}
	if n := c.count(); n != most {
		t.Errorf("there are %d connections", n)
	}
	ends[0]()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, _, err = control(t, address, 10); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is room again, and the next is told: %v", err)
		}
	}
}
