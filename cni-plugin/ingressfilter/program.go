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
	var four ingressIp4Rules
	var six ingressIp6Rules
	if r.CheckSources {
		four.Checked, six.Checked = 1, 1
	}
	if r.Guest {
		four.Guest, six.Guest = 1, 1
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
			spec.Variables[ingressVarIp6].Set(six))
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
