package ingressfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

//go:generate go tool bpf2go -target bpfel ingress ingress.c -- -mcpu=v3 -Wall -Wextra -Werror

// program loads the filter into the kernel. (ingress.c has ports in network byte order, and is for
// little endian.)
func (r Rules) program() (*ebpf.Program, error) {
	rules := ingressUdpRules{Both: bits.ReverseBytes16(r.Port),
		To: bits.ReverseBytes16(r.Destination)}
	if r.Untagged {
		rules.Untagged = 1
	}
	six := ingressIp6Rules{Count: uint8(len(r.Sources))}
	if r.CheckSources {
		six.Checked = 1
	}
	for i, a := range r.Sources {
		for j := range six.Sources[i].Word {
			six.Sources[i].Word[j] = binary.LittleEndian.Uint32(a.AsSlice()[4*j:])
		}
	}
	spec, err := loadIngress()
	if err == nil {
		err = errors.Join(spec.Variables[ingressVarRules].Set(rules), spec.Variables[ingressVarIp6].Set(six))
	}
	if err != nil {
		return nil, fmt.Errorf("the ingress filter: %w", err)
	}
	if r.Everything {
		code := spec.Programs[ingressProgDropEverything].Instructions
		// It goes by the same name, which is also that of its function.
		code[0] = btf.WithFuncMetadata(code[0], btf.FuncMetadata(&spec.Programs[name].Instructions[0]))
		spec.Programs[name].Instructions = code
	}
	var loaded struct {
		Filter *ebpf.Program `ebpf:"netcraq_ingress"`
	}
	if err := spec.LoadAndAssign(&loaded, nil); err != nil {
		return nil, fmt.Errorf("loading the ingress filter: %w", err)
	}
	return loaded.Filter, nil
}
