package lab

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
)

// Use makes all switches that are started later run another netcraq-switch binary.
func (nw *Network) Use(binary string) { nw.binary = binary }

// File writes the network's topology to a file, after it has applied change. It returns the file's
// path.
func (nw *Network) File(name string, change func(topologytest.Object)) string {
	nw.T.Helper()
	b, err := json.Marshal(topologytest.Read(nw.T, nw.file, change))
	if err != nil {
		nw.T.Fatal(err)
	}
	path := filepath.Join(nw.dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		nw.T.Fatal(err)
	}
	return path
}

// RunController starts a netcraq-controller process with a topology file and a state file. All
// controllers of a network have the same admin address.
func (nw *Network) RunController(binary, file, state string) *Controller {
	nw.T.Helper()
	socket := "unix://" + filepath.Join(nw.dir, "controller.sock")
	log, err := os.OpenFile(filepath.Join(nw.dir, "controller.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		nw.T.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(binary, "--topology", file, "--state", filepath.Join(nw.dir, state), "--admin", socket)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		nw.T.Fatal(err)
	}
	r := &Controller{T: nw.T, API: admin.NewClient(socket), URL: socket}
	r.Stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	nw.T.Cleanup(func() {
		r.Stop()
		if nw.T.Failed() {
			b, _ := os.ReadFile(log.Name())
			nw.T.Logf("the controllers' log:\n%s", tail(b, 120))
		}
	})
	poll.Until(nw.T, 20*time.Second, "the controller's API is there", func() bool {
		_, err := r.API.Chains(nw.T.Context())
		return err == nil
	}, func() string {
		b, _ := os.ReadFile(log.Name())
		return string(tail(b, 20))
	})
	return r
}
