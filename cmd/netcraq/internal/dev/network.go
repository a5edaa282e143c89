package dev

import (
	"fmt"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/controlplane/devnet"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/p4src"
)

// The network of a server has the switches of the chain and one more switch, "edge". There is a
// cable between each two of these switches. The programs on this machine are one host, connected to
// the edge. So they keep their connection when a switch of the chain is killed.
//
//	programs ── edge ──┬── s1 ──┐
//	                   ├── s2 ──┤ each with each
//	                   └── s3 ──┘
const (
	edgeName = "edge"
	hostPort = 100 // the edge's port to this machine's programs
	edgePort = 100 // port of each chain switch to the edge

	// Last bytes of addresses in the block of devnet.Loopback. The last byte of a switch's address
	// is the switch's number.
	serviceByte    = 100
	controllerByte = 254

	valueBits = 8192 // value width of the program: values of up to 1024 bytes

	// The read leases of a chain last shortLeaseMillis while the machine responds promptly, and
	// leaseMillis otherwise, for example while a laptop sleeps or compiles.
	shortLeaseMillis = 200
	leaseMillis      = 2000
)

var hostMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}

// network is the set of switches, and their connection to this machine's programs.
type network struct {
	*devnet.Network
	door     *devnet.Loopback
	topology *topology.Topology
	names    []string // names of the chain's switches
	files    []*os.File
}

// openNetwork starts the n switches of a chain, and the switch edge.
func openNetwork(n int) (*network, error) {
	last := []byte{serviceByte}
	for i := range n + 1 {
		last = append(last, byte(i+1))
	}
	door, err := devnet.ListenLoopback(last...)
	if err != nil {
		return nil, err
	}
	w := &network{door: door, Network: devnet.New(func(_ devnet.Port, frame []byte) { door.Send(frame) })}
	spec, err := w.connect(n)
	if err == nil {
		w.topology, err = topology.New(spec, "netcraq dev")
	}
	if err != nil {
		w.close()
		return nil, err
	}
	door.Serve(w.Network, devnet.Port{Switch: n + 1, Number: hostPort}, hostMAC)
	return w, nil
}

// connect starts the switches, connects them, and describes the network for the controller.
func (w *network) connect(n int) (spec topology.Spec, err error) {
	spec.Loopback = true
	spec.Controller.Address = w.door.Addr(controllerByte).String()
	if spec.Program.JSON, spec.Program.P4Info, err = w.program(); err != nil {
		return spec, err
	}
	for i := 1; i <= n+1; i++ {
		s, err := w.AddSwitch()
		if err != nil {
			return spec, err
		}
		name := fmt.Sprintf("s%d", i)
		if i > n {
			name = edgeName
		} else {
			w.names = append(w.names, name)
		}
		id := uint64(i)
		spec.Switches = append(spec.Switches, topology.SwitchSpec{Name: name, P4Runtime: s.Address(), DeviceID: &id,
			Address: w.door.Addr(byte(i)).String()})
	}
	link := func(a, b devnet.Port) {
		w.Connect(a, b)
		spec.Links = append(spec.Links, []string{
			fmt.Sprintf("%s:%d", spec.Switches[a.Switch-1].Name, a.Number),
			fmt.Sprintf("%s:%d", spec.Switches[b.Switch-1].Name, b.Number)})
	}
	for i := 1; i <= n; i++ {
		link(devnet.Port{Switch: i, Number: edgePort}, devnet.Port{Switch: n + 1, Number: uint32(i)})
		for j := i + 1; j <= n; j++ {
			link(devnet.Port{Switch: i, Number: uint32(j)}, devnet.Port{Switch: j, Number: uint32(i)})
		}
	}
	spec.Hosts = []topology.HostSpec{{Name: "programs", IP: w.door.Host().String(), MAC: hostMAC.String(),
		Port: fmt.Sprintf("%s:%d", edgeName, hostPort)}}
	id, lease, short := 1, leaseMillis, shortLeaseMillis
	spec.Chains = []topology.ChainSpec{{ID: &id, Name: "main", Address: w.door.Addr(serviceByte).String(),
		Members: w.names, LeaseMillis: &lease, ShortLease: &short}}
	return spec, nil
}

// program gives the compiled program to the controller in in-memory files. A killed process
// therefore leaves no files behind.
func (w *network) program() (json, p4info string, err error) {
	program, info, err := p4src.Compiled(valueBits)
	if err != nil {
		return "", "", err
	}
	var paths []string
	for _, content := range [][]byte{program, info} {
		fd, err := unix.MemfdCreate("netcraq-program", unix.MFD_CLOEXEC)
		if err != nil {
			return "", "", fmt.Errorf("a file in memory for the compiled program: %w", err)
		}
		f := os.NewFile(uintptr(fd), "netcraq-program")
		w.files = append(w.files, f)
		if _, err := f.Write(content); err != nil {
			return "", "", err
		}
		paths = append(paths, fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	return paths[0], paths[1], nil
}

// number returns the number of a switch of the chain, or 0 if no switch has this name.
func (w *network) number(name string) int { return 1 + slices.Index(w.names, name) }

func (w *network) close() {
	w.Network.Close()
	w.door.Close()
	for _, f := range w.files {
		f.Close()
	}
}
