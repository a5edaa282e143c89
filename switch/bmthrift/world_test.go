package bmthrift

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"
	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/p4rtserver"
	"github.com/netcraq/netcraq/switch/userspace"
)

const program = "../p4rtserver/testdata/entities"

// world is a switch that serves both Thrift and P4Runtime on the loopback address.
type world struct {
	files   string // path of the program's files without their extensions
	json    []byte
	info    *p4cfg.P4Info
	server  *p4rtserver.Server
	thrift  string // address of the Thrift server
	p4rt    p4v1.P4RuntimeClient
	noP4    bool // run the program without a P4Info
	options Options
}

func newWorld(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	w := &world{info: &p4cfg.P4Info{}, files: program}
	for _, f := range change {
		f(w)
	}
	text, err := os.ReadFile(w.files + ".p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	if err := prototext.Unmarshal(text, w.info); err != nil {
		t.Fatal(err)
	}
	if w.json, err = os.ReadFile(w.files + ".json"); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	dev, err := userspace.New(userspace.Options{CPUPort: 255, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	w.server = p4rtserver.New(dev, p4rtserver.Options{DeviceID: 1, Log: quiet})
	if w.noP4 {
		prog, err := bmv2json.Parse(w.json)
		if err != nil {
			t.Fatal(err)
		}
		err = w.server.Start(prog, w.json)
		if err != nil {
			t.Fatal(err)
		}
	} else if err := w.server.Load(&p4v1.ForwardingPipelineConfig{P4Info: w.info,
		P4DeviceConfig: w.json}); err != nil {
		t.Fatal(err)
	}
	w.options.DeviceID, w.options.Log = 1, quiet
	ts := New(dev, w.server.Local(), w.options)
	l := listen(t)
	go func() { _ = ts.Serve(l) }()
	t.Cleanup(ts.Close)
	w.thrift = l.Addr().String()

	g := grpc.NewServer(p4rtserver.ServerOptions()...)
	w.server.Register(g)
	gl := listen(t)
	go func() { _ = g.Serve(gl) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient(gl.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w.p4rt = p4v1.NewP4RuntimeClient(conn)
	stream, err := w.p4rt.StreamChannel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&p4v1.StreamMessageRequest{
		Update: &p4v1.StreamMessageRequest_Arbitration{Arbitration: &p4v1.MasterArbitrationUpdate{
			DeviceId: 1, ElectionId: &p4v1.Uint128{Low: 1}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return w
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// client makes calls on one connection, one at a time.
type client struct {
	ctx      context.Context
	protocol thrift.TProtocol
}

// ask makes a call and returns the answer. The name is "SERVICE:CALL", or only CALL for the service
// "standard". A nil argument stands for an empty value. Numbers may have other types than the IDL
// specifies.
func ask[T any](c *client, name string, args ...any) (answer T, err error) {
	service, method, ok := strings.Cut(name, ":")
	if !ok {
		service, method = "standard", name
	}
	m := services[service][method]
	in, out := reflect.New(m.args).Elem(), reflect.New(m.result).Elem()
	for i, a := range args {
		if f := in.Field(i); a != nil {
			f.Set(reflect.ValueOf(a).Convert(f.Type()))
		}
	}
	p := thrift.NewTMultiplexedProtocol(c.protocol, service)
	_, err = thrift.NewTStandardClient(p, p).Call(c.ctx, method, structure{in}, structure{out})
	if err != nil {
		return answer, err
	}
	if f := out.FieldByName(exception); f.IsValid() && !f.IsNil() {
		return answer, f.Interface().(error)
	}
	if f := out.FieldByName(success); f.IsValid() {
		if v, ok := f.Elem().Interface().(T); ok {
			return v, nil
		}
		return answer, fmt.Errorf("%s answers with %v, not %T", name, f.Type().Elem(), answer)
	}
	return answer, nil
}

// call makes a call as ask does, and drops the answer.
func (c *client) call(name string, args ...any) error {
	_, err := ask[any](c, name, args...)
	return err
}

func (w *world) dial(t *testing.T) *client {
	t.Helper()
	conf := &thrift.TConfiguration{ConnectTimeout: 5 * time.Second, SocketTimeout: 30 * time.Second}
	s := thrift.NewTSocketConf(w.thrift, conf)
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	p := thrift.NewTBinaryProtocolConf(thrift.NewTBufferedTransport(s, 4096), conf)
	return &client{t.Context(), p}
}

// id looks up an object's id in the P4Info by the object's alias.
func (w *world) id(t *testing.T, alias string) uint32 {
	t.Helper()
	for _, x := range w.info.Tables {
		if x.Preamble.Alias == alias {
			return x.Preamble.Id
		}
	}
	for _, x := range w.info.Actions {
		if x.Preamble.Alias == alias {
			return x.Preamble.Id
		}
	}
	for _, x := range w.info.ActionProfiles {
		if x.Preamble.Alias == alias {
			return x.Preamble.Id
		}
	}
	for _, x := range w.info.Registers {
		if x.Preamble.Alias == alias {
			return x.Preamble.Id
		}
	}
	t.Fatalf("the P4Info has no %q", alias)
	return 0
}

// write sends one update as a P4Runtime controller.
func (w *world) write(t *testing.T, typ p4v1.Update_Type, e *p4v1.Entity) error {
	t.Helper()
	_, err := w.p4rt.Write(t.Context(), &p4v1.WriteRequest{DeviceId: 1,
		ElectionId: &p4v1.Uint128{Low: 1}, Updates: []*p4v1.Update{{Type: typ, Entity: e}}})
	return err
}

// read sends a read request as a P4Runtime controller and returns the entities.
func (w *world) read(t *testing.T, q *p4v1.Entity) []*p4v1.Entity {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := w.p4rt.Read(ctx, &p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{q}})
	if err != nil {
		t.Fatal(err)
	}
	var out []*p4v1.Entity
	for {
		r, err := stream.Recv()
		if err != nil {
			if len(out) == 0 && err.Error() != "EOF" {
				t.Fatal(err)
			}
			return out
		}
		out = append(out, r.Entities...)
	}
}

func entryOf(e *p4v1.TableEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: e}}
}
