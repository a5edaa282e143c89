package ingressfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

//go:generate go tool bpf2go -target bpfel ingress ingress.c -- -mcpu=v3 -Wall -Wextra -Werror

// program loads the filter into the kernel under a name. (ingress.c expects ports in network byte
// order, and is for little-endian machines.)
func (r Rules) program(name string) (*ebpf.Program, error) {
	rules := ingressUdpRules{Both: bits.ReverseBytes16(r.Port),
		To: bits.ReverseBytes16(r.Destination)}
	if r.Untagged {
		rules.Untagged = 1
	}
	var four ingressIp4Rules
	var six ingressIp6Rules
	if r.CheckSources {
		four.Checked, six.Checked = 1, 1
	}
	if r.Guest {
		four.Guest, six.Guest = 1, 1
	}
	for i, p := range r.NotFrom {
		four.NotFrom[i].Address = binary.LittleEndian.Uint32(p.Masked().Addr().AsSlice())
		four.NotFrom[i].Mask = binary.LittleEndian.Uint32(net.CIDRMask(p.Bits(), p.Addr().BitLen()))
	}
	for _, a := range r.Sources {
		if a.Is4() {
			four.Sources[four.Count] = binary.LittleEndian.Uint32(a.AsSlice())
			four.Count++
			continue
		}
		for j := range six.Sources[six.Count].Word {
			six.Sources[six.Count].Word[j] = binary.LittleEndian.Uint32(a.AsSlice()[4*j:])
		}
		six.Count++
	}
	spec, err := loadIngress()
	if err == nil {
		err = errors.Join(spec.Variables[ingressVarRules].Set(rules), spec.Variables[ingressVarIp4].Set(four),
			spec.Variables[ingressVarIp6].Set(six), spec.Variables[ingressVarSwitchMark].Set(uint32(SwitchMark)))
	}
	if err != nil {
		return nil, fmt.Errorf("the ingress filter: %w", err)
	}
	if r.Everything {
		code := spec.Programs[ingressProgDropEverything].Instructions
		// drop_everything replaces the other program under the same name, so its function needs
		// this name, too.
		code[0] = btf.WithFuncMetadata(code[0], btf.FuncMetadata(&spec.Programs[name].Instructions[0]))
		spec.Programs[name].Instructions = code
	}
	for other := range spec.Programs {
		if other != name {
			delete(spec.Programs, other)
		}
	}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading the ingress filter: %w", err)
	}
	defer loaded.Close()
	return loaded.DetachProgram(name), nil
}
