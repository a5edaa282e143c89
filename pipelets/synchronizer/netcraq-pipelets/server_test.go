package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// etcdServer is an etcd in a separate process, which can be killed and restarted.
type etcdServer struct {
	t        *testing.T
	spec     string // argument of the process, with its folder and its addresses
	Endpoint string
	Client   *clientv3.Client
	process  *exec.Cmd
}

func newServer(t *testing.T) *etcdServer {
	t.Helper()
	addr := testport.Free(t)
	s := &etcdServer{t: t, spec: filepath.Join(t.TempDir(), "etcd") + " " + addr + " " + testport.Free(t), Endpoint: "http://" + addr}
	s.Start()
	t.Cleanup(s.Kill)
	var err error
	s.Client, err = clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Client.Close() })
	poll.Nil(t, 30*time.Second, "an etcd", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Client.Get(ctx, "x")
		return err
	})
	return s
}

// Start starts the server. It may take a second until the server answers.
func (s *etcdServer) Start() {
	s.t.Helper()
	s.process = exec.Command(os.Args[0])
	s.process.Env = append(os.Environ(), "NETCRAQ_PIPELETS_TEST_ETCD="+s.spec)
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *etcdServer) Kill() {
	s.process.Process.Kill()
	s.process.Wait()
}

// serve is the main function of the etcd process.
func serve(spec string) {
	part := strings.Fields(spec)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := embedded.Start(ctx, embedded.Config{DataDir: part[0], Client: part[1], Peer: part[2], LogLevel: "fatal"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-ctx.Done()
	s.Close()
}
