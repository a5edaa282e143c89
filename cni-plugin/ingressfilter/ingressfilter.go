// Package ingressfilter keeps packets of the switches from a node's own network stack: what comes in by an interface that is a switch port, is to or from the NetCRAQ port, and has
// not been taken by the switch, is dropped.
//
// While the switch runs it takes those packets before they get here. When it does not (the agent is being restarted or was killed), or looks at copies (the interpreter), the
// kernel would route them like any others, and a pod could have it carry an acknowledgement to a switch on another node, which believes what comes from the fabric. So the
// filter does not go with the agent: it is attached without a link that a process holds, and stays until the interface goes or somebody takes it off.
//
//	frame ──▶ the switch ──▶ filter ──▶ the host's stack
//	             │ takes       │ drops what is left of NetCRAQ
//
// At tcx it leaves the interface's ingress queueing discipline free for others (the bandwidth plugin has one there). On kernels before 6.6 it is a filter of clsact.
package ingressfilter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// name of the program, of 15 bytes at most. It is how a filter is known for one.
const name = "netcraq_ingress"

// formerName is that of agents before. They leave theirs behind, and it is replaced as one of ours is.
const formerName = "netcraq_guard"

// Rules say what is dropped: IPv4 packets with UDP, first fragments and those with options included.
type Rules struct {
	Ports        []uint16 // to or from
	Destinations []uint16 // to
}

// Attach puts a filter onto an interface of the calling thread's network namespace, in the place of one that is there.
func Attach(ifindex int, r Rules) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: r.instructions()})
	if err != nil {
		return fmt.Errorf("loading the ingress filter: %w", err)
	}
	defer prog.Close()
	old, err := find(ifindex)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return attachFilter(ifindex, prog)
	}
	if err != nil {
		return err
	}
	var anchor link.Anchor = link.Tail()
	if old != nil {
		defer old.Close()
		anchor = link.ReplaceProgram(old)
	}
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: ifindex, Program: prog, Attach: ebpf.AttachTCXIngress, Anchor: anchor}); err != nil {
		return fmt.Errorf("attaching the ingress filter: %w", err)
	}
	return nil
}

// Attached reports whether an interface has a filter.
func Attached(ifindex int) (bool, error) {
	p, err := find(ifindex)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return filterAttached(ifindex)
	}
	if p != nil {
		p.Close()
	}
	return p != nil, err
}

// Detach takes the filter off an interface, if there is one.
func Detach(ifindex int) error {
	p, err := find(ifindex)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return removeFilter(ifindex)
	}
	if err != nil || p == nil {
		return err
	}
	defer p.Close()
	if err := link.RawDetachProgram(link.RawDetachProgramOptions{Target: ifindex, Program: p, Attach: ebpf.AttachTCXIngress}); err != nil {
		return fmt.Errorf("taking the ingress filter off: %w", err)
	}
	return nil
}

// withoutTCX has the tests do what kernels before 6.6 need.
var withoutTCX bool

// find gives the filter at an interface; nil where there is none.
func find(ifindex int) (*ebpf.Program, error) {
	if withoutTCX {
		return nil, ebpf.ErrNotSupported
	}
	q, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		if errors.Is(err, unix.EINVAL) { // what kernels without tcx say
			err = ebpf.ErrNotSupported
		}
		return nil, fmt.Errorf("looking for an ingress filter at interface %d: %w", ifindex, err)
	}
	for _, a := range q.Programs {
		p, err := ebpf.NewProgramFromID(a.ID)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking at the programs of interface %d: %w", ifindex, err)
		}
		if info, err := p.Info(); err == nil && (info.Name == name || info.Name == formerName) {
			return p, nil
		}
		p.Close()
	}
	return nil, nil
}

// Verdicts (linux/pkt_cls.h): on to the next program or the stack, and drop.
const (
	next = -1
	drop = 2
)

// instructions is the program. R6 is the context.
func (r Rules) instructions() asm.Instructions {
	const header, ports = -16, -24 // on the stack: the bytes 12 to 24 of the frame, and the UDP ports
	load := func(offset asm.Instruction, to int16, n int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), offset, asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, int32(to)), asm.Mov.Imm(asm.R4, n),
			asm.FnSkbLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, "next"),
		}
	}
	insns := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	insns = append(insns, load(asm.Mov.Imm(asm.R2, 12), header, 12)...)
	insns = append(insns,
		asm.LoadMem(asm.R1, asm.R10, header, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half), asm.JNE.Imm(asm.R1, unix.ETH_P_IP, "next"),
		asm.LoadMem(asm.R1, asm.R10, header+11, asm.Byte), asm.JNE.Imm(asm.R1, unix.IPPROTO_UDP, "next"),
		asm.LoadMem(asm.R1, asm.R10, header+8, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half), asm.And.Imm(asm.R1, 0x1fff), asm.JNE.Imm(asm.R1, 0, "next"),
		asm.LoadMem(asm.R7, asm.R10, header+2, asm.Byte), asm.And.Imm(asm.R7, 15), asm.LSh.Imm(asm.R7, 2), asm.Add.Imm(asm.R7, 14), // where UDP begins
	)
	insns = append(insns, load(asm.Mov.Reg(asm.R2, asm.R7), ports, 4)...)
	insns = append(insns, asm.LoadMem(asm.R1, asm.R10, ports, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.LoadMem(asm.R2, asm.R10, ports+2, asm.Half), asm.HostTo(asm.BE, asm.R2, asm.Half))
	for _, p := range r.Ports {
		insns = append(insns, asm.JEq.Imm(asm.R1, int32(p), "drop"), asm.JEq.Imm(asm.R2, int32(p), "drop"))
	}
	for _, p := range r.Destinations {
		insns = append(insns, asm.JEq.Imm(asm.R2, int32(p), "drop"))
	}
	return append(insns,
		asm.Mov.Imm(asm.R0, next).WithSymbol("next"), asm.Return(),
		asm.Mov.Imm(asm.R0, drop).WithSymbol("drop"), asm.Return())
}

// ---- clsact, on kernels before 6.6 ----

// priority is behind that of any switch's filter.
const priority = 0xc000

func filter(ifindex int) *netlink.BpfFilter {
	return &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: priority},
		Name: name, DirectAction: true}
}

func attachFilter(ifindex int, prog *ebpf.Program) error {
	q := &netlink.GenericQdisc{QdiscType: "clsact",
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := netlink.QdiscAdd(q); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("attaching the ingress filter: adding clsact: %w", err)
	}
	f := filter(ifindex)
	f.Fd = prog.FD()
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("attaching the ingress filter with clsact: %w", err)
	}
	return nil
}

func filterAttached(ifindex int) (bool, error) {
	filters, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return false, fmt.Errorf("looking for an ingress filter at interface %d: %w", ifindex, err)
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && (b.Name == name || b.Name == formerName) {
			return true, nil
		}
	}
	return false, nil
}

func removeFilter(ifindex int) error {
	if err := netlink.FilterDel(filter(ifindex)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("taking the ingress filter off: %w", err)
	}
	return nil
}
