package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// Team is two netcraq-controller processes that share an etcd. One of them leads.
type Team struct {
	Network *Network
	binary  string
	server  string
	Etcd    *clientv3.Client
	flags   []string                    // additional flags of the controllers
	Cmds    [2]atomic.Pointer[exec.Cmd] // nil while a controller is not running
	// if known, why the condition that a test waits for does not hold yet
	Seen string
}

func (t *Team) admin(i int) string { return fmt.Sprintf("127.0.0.1:%d", 9151+i) }

func (t *Team) Socket(i int) string { return fmt.Sprintf("unix://%s/c%d.sock", t.Network.dir, i) }

func StartTeam(nw *Network, flags ...string) *Team {
	nw.T.Helper()
	t := &Team{Network: nw, flags: flags, binary: Built(nw.T, "controlplane/cmd/netcraq-controller"), server: etcdtest.Start(nw.T)}
	t.Etcd = etcdtest.Client(nw.T, t.server)
	for i := range t.Cmds {
		t.Start(i)
	}
	nw.T.Cleanup(func() {
		for i := range t.Cmds {
			t.Kill(i)
			if nw.T.Failed() {
				b, _ := os.ReadFile(t.log(i))
				nw.T.Logf("controller %d's log:\n%s", i, tail(b, 150))
			}
		}
	})
	return t
}

func (t *Team) log(i int) string {
	return filepath.Join(t.Network.dir, fmt.Sprintf("controller%d.log", i))
}

func (t *Team) Start(i int) {
	t.Network.T.Helper()
	log, err := os.OpenFile(t.log(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Network.T.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(t.binary, append([]string{"--topology", t.Network.file, "--etcd", t.server, "--admin",
		t.admin(i) + "," + t.Socket(i), "--admin-token", t.Network.dir + "/token", "--admin-read-token", t.Network.dir + "/read"}, t.flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Network.T.Fatal(err)
	}
	t.Cmds[i].Store(cmd)
}

// Kill kills a controller with SIGKILL.
func (t *Team) Kill(i int) {
	if cmd := t.Cmds[i].Swap(nil); cmd != nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// Leader returns the number of the leading controller, according to etcd.
func (t *Team) Leader() int {
	t.Network.T.Helper()
	leads := -1
	t.Until("a controller to lead", func() bool {
		r, err := t.Etcd.Get(t.Network.T.Context(), "/netcraq/leader", clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil || len(r.Kvs) == 0 {
			return false
		}
		var id etcdstore.Identity
		if err := json.Unmarshal(r.Kvs[0].Value, &id); err != nil {
			t.Network.T.Fatal(err)
		}
		for i := range t.Cmds {
			if id.Admin == t.admin(i) && t.Cmds[i].Load() != nil {
				leads = i
			}
		}
		return leads >= 0
	})
	return leads
}

// API returns the admin API of a running controller, whether or not it leads.
func (t *Team) API() *admin.Client {
	for i := range t.Cmds {
		if t.Cmds[i].Load() != nil {
			return admin.NewClient(t.Socket(i))
		}
	}
	t.Network.T.Fatal("no controller runs")
	return nil
}

func (t *Team) Until(what string, done func() bool) {
	t.Network.T.Helper()
	poll.Until(t.Network.T, time.Minute, what, done, func() string { return fmt.Sprint(t.Seen) })
}

// KillAt kills the leader when it reports the event `point`. It then sends the leader's number to
// the returned channel.
func (t *Team) KillAt(point string) chan int {
	i := t.Leader()
	c := admin.NewClient(t.Socket(i))
	var last uint64
	c.Events(t.Network.T.Context(), 0, false, func(e admin.Event) error { last = e.ID; return nil })
	kind, with, _ := strings.Cut(point, " ")
	done := make(chan int, 1)
	go func() {
		c.Events(t.Network.T.Context(), last, true, func(e admin.Event) error {
			if e.Type == kind && strings.Contains(e.Message, with) {
				t.Cmds[i].Load().Process.Kill()
				return errors.New("that is all")
			}
			return nil
		})
		t.Kill(i)
		done <- i
	}()
	return done
}

// Members returns the members of the chain according to the leader, or nil while the chain is not
// ready.
func (t *Team) Members() []string {
	ctx, cancel := context.WithTimeout(t.Network.T.Context(), 2*time.Second)
	defer cancel()
	ch, err := t.API().Chain(ctx, "main")
	if err != nil || !ch.Ready {
		return nil
	}
	var out []string
	for _, m := range ch.Members {
		out = append(out, m.Switch)
	}
	return out
}
