package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/streams/source"
)

const long = 60 * time.Second

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), long)
	t.Cleanup(cancel)
	return ctx
}

// role is an environment variable. It tells the test binary, when it is started as another process,
// which role to play.
const role = "NETCRAQ_JETSTREAM_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "server":
		err = serve(os.Args[1], os.Args[2])
	case "consumer":
		err = consume(os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs a node's server with JetStream in this process, until the process is killed.
func serve(dir, config string) error {
	go exitWithStdin()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	k, err := opened(config, log)
	if err != nil {
		return err
	}
	defer k.close()
	l, err := server.Listen("unix://"+filepath.Join(dir, "s"), server.Access{Mode: 0o600, GID: -1})
	if err != nil {
		return err
	}
	return server.New(server.Config{Store: store.NewMemory(1024), Name: "test", Node: "here", Namespace: "shop", Log: log,
		Sources: map[string]source.Maker{"jetstream": k.Make},
		Streams: &broker.Options{Dir: filepath.Join(dir, "streams")}}).Serve(l)
}

func opened(config string, log *slog.Logger, urls ...string) (*origin, error) {
	f, err := read(config)
	if err == nil {
		err = f.check(len(urls) > 0)
	}
	if err != nil {
		return nil, err
	}
	return open(f, urls, log), nil
}

// exitWithStdin ends this process when the test has ended.
func exitWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// consume writes each record of a stream to a file, one record per line. It begins after the last
// complete line in the file.
func consume(socket, path string) error {
	go exitWithStdin()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	next := uint64(0)
	for _, c := range text {
		if c == '\n' {
			next++
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	r, err := streams.Open(context.Background(), streams.Config{Socket: socket, Stream: "s", Consumer: "me",
		Partitions: []int{0}, Offsets: []uint64{next}})
	if err != nil {
		return err
	}
	for {
		b, err := r.Next(context.Background())
		if err != nil {
			return err
		}
		if b.Missed > 0 {
			return fmt.Errorf("%d records before %d were missed", b.Missed, b.Offset)
		}
		for offset, record := range b.Records() {
			if _, err := fmt.Fprintf(f, "%d %s\n", offset, record.Data); err != nil {
				return err
			}
		}
	}
}

// process is a process that the test kills and starts again.
type process struct {
	t    *testing.T
	role string
	args []string
	cmd  *exec.Cmd
	in   io.Closer
	end  chan error
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0], p.args...)
	p.cmd.Env = append(os.Environ(), role+"="+p.role)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.in, p.end = in, make(chan error, 1)
	go func(c *exec.Cmd, end chan error) { end <- c.Wait() }(p.cmd, p.end)
}

// kill kills the process. It fails if the process has already ended by itself.
func (p *process) kill() {
	p.t.Helper()
	select {
	case err := <-p.end:
		p.t.Errorf("the %s ended: %v", p.role, err)
	default:
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		<-p.end
	}
	p.in.Close()
}

// operator writes an operator's file. With it, the namespaces shop and third may use ORDERS and
// append to it. A producer with the password "secret" may publish to the subjects of ORDERS.
func operator(t *testing.T) (path, listen string) {
	t.Helper()
	dir := t.TempDir()
	path, listen = filepath.Join(dir, "jetstream.yaml"), testport.Free(t)
	password := filepath.Join(dir, "password")
	text := fmt.Sprintf(`
dir: %s
listen: %s
producers:
  till: {passwordFile: %s, publish: [orders.>]}
streams:
  ORDERS: {subjects: [orders.>], maxBytes: 104857600, maxAge: 24h}
  SECRETS: {subjects: [secrets.>]}
namespaces:
  shop: [ORDERS]
  third: [ORDERS]
append:
  shop: [orders.>, $JS.API.>]
  third: [orders.third.>]
`, filepath.Join(dir, "nats"), listen, password)
	for name, text := range map[string]string{password: "secret\n", path: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path, listen
}

// producer connects to JetStream as the producer in the operator's file.
func producer(t *testing.T, listen string) (*nats.Conn, js.JetStream) {
	t.Helper()
	var nc *nats.Conn
	poll.Nil(t, long, "a connection to NATS", func() (err error) {
		nc, err = nats.Connect("nats://"+listen, nats.UserInfo("till", "secret"), nats.MaxReconnects(-1),
			nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
		return err
	})
	t.Cleanup(nc.Close)
	j, err := js.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, j
}

// begin makes a broker in this process. Its streams are filled as in a node's server.
func begin(t *testing.T, config, dir string, urls ...string) (*origin, *broker.Broker) {
	t.Helper()
	o, err := opened(config, slog.New(slog.DiscardHandler), urls...)
	if err != nil {
		t.Fatal(err)
	}
	b := broker.New(broker.Options{Dir: dir, Sources: o.Make})
	t.Cleanup(func() {
		b.Drain()
		o.close()
	})
	return o, b
}

func config(partitions int) *nodeapi.StreamConfig {
	hour := 3_600_000
	return &nodeapi.StreamConfig{Partitions: partitions, Objects: 16, ObjectBytes: 1024, StallMillis: hour,
		KeepMillis: hour, Source: &nodeapi.StreamSource{JetStream: &nodeapi.JetStreamSource{Stream: "ORDERS"}}}
}

func connect(t *testing.T, socket string) *node.Client {
	t.Helper()
	var c *node.Client
	poll.Nil(t, long, "the server to listen", func() (err error) {
		c, err = node.Connect(t.Context(), node.Config{Socket: socket})
		return err
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ctx)
	})
	return c
}
