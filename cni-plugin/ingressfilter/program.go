package ingressfilter

import (
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
	spec, err := loadIngress()
	if err == nil {
		err = spec.Variables[ingressVarRules].Set(rules)
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
