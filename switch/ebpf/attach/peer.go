package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/offload"
)

// Peer is the other end of a veth pair of which this switch has one end at XDP. The switch prepares
// the peer in two ways:
//
//   - The peer's sender must complete the data that XDP does not see. It writes checksums and
//     802.1Q tags into the frame (tx-checksumming and tx-vlan-offload off).
//   - The peer must accept frames from XDP. A veth does so while it polls (NAPI), and it polls if
//     it has an XDP program itself. A program that passes everything is enough.
//
// Release undoes both. If this switch is killed, the kernel and the next switch (package offload)
// undo both.
type Peer struct {
	Namespace *Namespace // a thread in the peer's namespace; may be the switch's own thread
	own       bool       // set if Release must close Namespace
	iface     string
	ifindex   int
	settings  *offload.Change
	program   link.Link // nil if another program is attached to the peer
}

// actionPass is XDP_PASS in linux/bpf.h.
const actionPass = 2

// passName is the name of the program that a switch attaches to a peer. Other switches recognize it
// by this name.
const passName = "netcraq_pass"

// PreparePeer prepares the other end of a veth. It must not be called on the thread of home.
func PreparePeer(home *Namespace, port *netlink.Veth) (*Peer, error) {
	return preparePeer(home, port, (*Peer).EnsureProgram, offload.TxChecksums, offload.TxVLAN)
}

// FinishFrames makes the sender at the other end of a veth complete checksums until the peer is
// released. The sender then also splits large segments to the interface's MTU. FinishFrames must
// not be called on the thread of home.
func FinishFrames(home *Namespace, port *netlink.Veth) (*Peer, error) {
	return preparePeer(home, port, func(*Peer) error { return nil }, offload.TxChecksums)
}

func preparePeer(home *Namespace, port *netlink.Veth, also func(*Peer) error,
	settings ...offload.Setting) (*Peer, error) {
	p := &Peer{ifindex: port.Attrs().ParentIndex}
	if p.ifindex == 0 {
		return nil, errors.New("the veth has no peer")
	}
	p.Namespace = home
	if nsid := port.Attrs().NetNsID; nsid >= 0 {
		var err error
		if p.Namespace, err = findNamespace(home, nsid); err != nil {
			return nil, err
		}
		p.own = true
	}
	err := p.Namespace.Do(func() error {
		l, err := netlink.LinkByIndex(p.ifindex)
		if err != nil {
			return fmt.Errorf("the veth's peer: %w", err)
		}
		p.iface = l.Attrs().Name
		if err := offload.Recover(); err != nil {
			return err
		}
		p.settings, err = offload.Off(p.iface, p.ifindex, settings...)
		if err != nil {
			return err
		}
		return also(p)
	})
	if err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

// EnsureProgram attaches a program at XDP to the peer if the peer has none. It must be called
// repeatedly, on the peer's thread, because the program of another switch may disappear.
func (p *Peer) EnsureProgram() error {
	l, err := netlink.LinkByIndex(p.ifindex)
	if err != nil {
		return fmt.Errorf("the veth's peer: %w", err)
	}
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		return nil
	}
	if p.program != nil {
		_ = p.program.Close()
		p.program = nil
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: passName, Type: ebpf.XDP, License: "GPL",
		Flags:        unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, actionPass), asm.Return()}})
	if err != nil {
		return fmt.Errorf("loading the program for the veth's peer: %w", err)
	}
	defer prog.Close()
	p.program, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: p.ifindex,
		Flags: link.XDPDriverMode})
	// EBUSY means that another process has just attached a program, which suffices.
	if err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("attaching a program to the veth's peer %s: %w", p.iface, err)
	}
	return nil
}

// Release restores the peer's original settings.
func (p *Peer) Release() {
	if p.program != nil {
		_ = p.program.Close()
	}
	_ = p.Namespace.Do(p.settings.Restore)
	if p.own {
		p.Namespace.Close()
	}
}

// removePass detaches the program that a switch attached to an interface as its peer. It reports
// whether there was such a program.
func removePass(ifindex int) bool {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil {
		return false
	}
	// Links identify interfaces only by index, and indices repeat across namespaces. A switch loads
	// each of these programs for one interface only, so the program's id identifies the link.
	id := ebpf.ProgramID(l.Attrs().Xdp.ProgId)
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false
	}
	about, err := prog.Info()
	prog.Close()
	if err != nil || about.Name != passName {
		return false
	}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && info.Type == link.XDPType &&
			info.Program == id {
			return it.Link.Detach() == nil
		}
	}
	return false
}

// findNamespace starts a thread in the network namespace that has the id nsid in home. It searches
// the namespaces of processes and the named namespaces.
func findNamespace(home *Namespace, nsid int) (*Namespace, error) {
	var paths []string
	for _, pattern := range []string{"/run/netns/*", "/proc/[0-9]*/ns/net"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	seen := map[uint64]bool{}
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		id := -1
		err = home.Do(func() (err error) {
			id, err = netlink.GetNetNsIdByFd(int(f.Fd()))
			return err
		})
		if err == nil && id == nsid {
			n, err := newNamespace(int(f.Fd()))
			f.Close()
			return n, err
		}
		f.Close()
	}
	return nil,
		fmt.Errorf("the peer is in a network namespace (id %d) of which no process or "+
			"name is found", nsid)
}
