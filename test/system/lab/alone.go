package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
)

// Alone is a netcraq-controller process that keeps its state in files. It can be killed and
// restarted.
type Alone struct {
	Network *Network
	binary  string
	cmd     atomic.Pointer[exec.Cmd] // nil while the controller is not running
}

// StartAlone starts a controller process that keeps its state in files.
func StartAlone(nw *Network) *Alone {
	nw.T.Helper()
	a := &Alone{Network: nw, binary: Built(nw.T, "controlplane/cmd/netcraq-controller")}
	a.Start()
	nw.T.Cleanup(func() {
		a.Kill()
		if nw.T.Failed() {
			b, _ := os.ReadFile(a.log())
			nw.T.Logf("the controller's log:\n%s", tail(b, 150))
		}
	})
	return a
}

func (a *Alone) log() string { return filepath.Join(a.Network.dir, "alone.log") }

// Socket returns the address of the controller's admin API.
func (a *Alone) Socket() string { return "unix://" + filepath.Join(a.Network.dir, "alone.sock") }

// Start starts the process again.
func (a *Alone) Start() {
	a.Network.T.Helper()
	log, err := os.OpenFile(a.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		a.Network.T.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(a.binary, "--topology", a.Network.file, "--state", filepath.Join(a.Network.dir, "alone.json"),
		"--admin", a.Socket())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		a.Network.T.Fatal(err)
	}
	a.cmd.Store(cmd)
}

// Kill kills the process with SIGKILL.
func (a *Alone) Kill() {
	if cmd := a.cmd.Swap(nil); cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// Signal sends a signal to the process, if it runs.
func (a *Alone) Signal(what syscall.Signal) {
	if cmd := a.cmd.Load(); cmd != nil {
		_ = cmd.Process.Signal(what)
	}
}
