package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"
)

// own is the name of the user that this process uses for its own server. The user has all rights.
const own = "netcraq"

// startOwn runs a NATS server in this process, and connects to it. First it waits until its
// predecessor, which is draining, has released the folder. The function `end` stops the server and
// closes the connection.
func startOwn(ctx context.Context, f *file, log *slog.Logger) (nc *nats.Conn, end func(), err error) {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return nil, nil, err
	}
	lock, err := os.OpenFile(filepath.Join(f.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, nil, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	o := &server.Options{ServerName: "netcraq", StoreDir: f.Dir, JetStream: true, JetStreamMaxStore: f.MaxBytes,
		JetStreamMaxMemory: 64 << 20, NoSigs: true, DontListen: f.Listen == "", MaxPayload: maxPayload,
		DisableJetStreamBanner: true}
	if f.Listen != "" {
		host, port, err := net.SplitHostPort(f.Listen)
		if err != nil {
			return nil, nil, err
		}
		if o.Port, err = strconv.Atoi(port); err != nil {
			return nil, nil, err
		}
		o.Host = host
	}
	password := rand.Text()
	o.Users = []*server.User{{Username: own, Password: password}}
	for name, u := range f.Producers {
		text, err := secret(u.PasswordFile)
		if err != nil {
			return nil, nil, fmt.Errorf("the producer %s: %w", name, err)
		}
		// A producer can publish and receive acknowledgements, and nothing else. It cannot use the
		// API, which could read or delete messages. It also cannot receive messages to this
		// process.
		o.Users = append(o.Users, &server.User{Username: name, Password: text, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: u.Publish},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}})
	}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, nil, err
	}
	s.SetLoggerV2(logger{log}, false, false, false)
	s.Start()
	stop := func() {
		s.Shutdown()
		s.WaitForShutdown()
	}
	if !s.ReadyForConnections(10 * time.Second) {
		stop()
		return nil, nil, errors.New("the embedded NATS server does not begin to serve; the log says why")
	}
	nc, err = nats.Connect("", append(always, nats.InProcessServer(s), nats.UserInfo(own, password))...)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return nc, func() {
		nc.Close()
		stop()
		lock.Close()
	}, nil
}

// maxPayload is the maximum size of a message and of a record, in bytes (1 MiB).
const maxPayload = 1 << 20

// logger writes the messages of the NATS server to the log of this process.
type logger struct{ *slog.Logger }

func (l logger) Noticef(string, ...any)         {}
func (l logger) Debugf(string, ...any)          {}
func (l logger) Tracef(string, ...any)          {}
func (l logger) Warnf(format string, v ...any)  { l.Warn("NATS: " + fmt.Sprintf(format, v...)) }
func (l logger) Errorf(format string, v ...any) { l.Error("NATS: " + fmt.Sprintf(format, v...)) }
func (l logger) Fatalf(format string, v ...any) { l.Error("NATS: " + fmt.Sprintf(format, v...)) }
