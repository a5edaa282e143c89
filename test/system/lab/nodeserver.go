package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/server"
)

// envNode is an environment variable. In a child process that is a node API server, it has the
// server's configuration.
const envNode = "NETCRAQ_TEST_NODE"

// NodeServer is a node API server process in the namespace of a host. It stores keys in the
// network's chains. Its socket is on disk, so that programs in any namespace can reach it.
type NodeServer struct {
	nw     *Network
	at     *Host
	does   nodeServing
	Socket string
	cmd    atomic.Pointer[exec.Cmd] // nil while the server is not running
}

// nodeServing is the configuration of the server process.
type nodeServing struct {
	Name, Namespace, Socket string
	Admin                   string // addresses of the controllers' admin APIs
	Quota                   int
}

// StartNodeServer starts a node API server at the host of a switch.
func StartNodeServer(nw *Network, host int, namespace string, admin ...string) *NodeServer {
	nw.T.Helper()
	name := fmt.Sprintf("node%d", host)
	s := &NodeServer{nw: nw, at: nw.Hosts[host-1], Socket: filepath.Join(nw.dir, name+".sock")}
	s.does = nodeServing{Name: name, Namespace: namespace, Socket: s.Socket, Admin: strings.Join(admin, ","), Quota: 4000}
	nw.T.Cleanup(func() {
		s.Kill()
		if nw.T.Failed() {
			b, _ := os.ReadFile(s.log())
			nw.T.Logf("%s's log:\n%s", name, tail(b, 60))
		}
	})
	s.Start()
	return s
}

func (s *NodeServer) log() string { return strings.TrimSuffix(s.Socket, "sock") + "log" }

// Start starts the server again, and waits until it listens.
func (s *NodeServer) Start() {
	s.nw.T.Helper()
	does, err := json.Marshal(s.does)
	if err != nil {
		s.nw.T.Fatal(err)
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.nw.T.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", s.at.Cmd.Process.Pid), "--", os.Args[0])
	cmd.Env = append(os.Environ(), envNode+"="+string(does))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.nw.T.Fatal(err)
	}
	s.cmd.Store(cmd)
	s.nw.answers(60*time.Second, s.does.Name+" listens", "unix", s.Socket, log.Name())
}

// Kill kills the server with SIGKILL.
func (s *NodeServer) Kill() {
	if cmd := s.cmd.Swap(nil); cmd != nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// Signal sends a signal to the server, if it runs.
func (s *NodeServer) Signal(what syscall.Signal) {
	if cmd := s.cmd.Load(); cmd != nil {
		cmd.Process.Signal(what)
	}
}

// nodeServerMain runs a node API server.
func nodeServerMain(does string) error {
	var d nodeServing
	if err := json.Unmarshal([]byte(does), &d); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	st, err := nodeStore(d, log)
	if err != nil {
		return err
	}
	// a killed process may have left the socket
	if err := os.Remove(d.Socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := net.Listen("unix", d.Socket)
	if err != nil {
		return err
	}
	return server.New(server.Config{Store: st, Name: "test", Node: d.Name, Namespace: d.Namespace, Log: log}).Serve(l)
}

// nodeStore creates the server's store. For that, a controller must answer.
func nodeStore(d nodeServing, log *slog.Logger) (*keys.Store, error) {
	o := keys.Options{Admin: admin.NewClient(d.Admin), Node: d.Name, Sessions: 8,
		Quota: func(string) int { return d.Quota }, Interval: 200 * time.Millisecond, Round: time.Second}
	if err := notified(&o, d.Socket, log); err != nil {
		return nil, err
	}
	for end := time.Now().Add(40 * time.Second); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		st, err := keys.New(ctx, o)
		cancel()
		if err == nil || time.Now().After(end) {
			return st, err
		}
		log.Warn("no store yet", "error", err)
		time.Sleep(50 * time.Millisecond)
	}
}
