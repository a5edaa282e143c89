package kernelpeers

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
)

//go:embed headers/bpf_helpers.h
var helpers []byte

// entries is the number of entries in each table.
const entries = 16384

// source is a C program in the checkout of another store.
type source struct {
	folder  string         // folder of the program in the checkout
	file    string         // file of the program
	others  []string       // other files, which the program includes
	defines map[string]int // values of definitions that replace the store's own values
}

// compile compiles a program of a checkout. It does not change the checkout.
func (s *source) compile(checkout string) (*ebpf.CollectionSpec, error) {
	work, err := os.MkdirTemp("", "netcraq-kernel-peer-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	// Programs from kernel trees include bpf_helpers.h from different folders.
	for _, folder := range []string{".", "linux/tools/lib/bpf"} {
		if err := os.MkdirAll(filepath.Join(work, folder), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(work, folder, "bpf_helpers.h"), helpers, 0o600); err != nil {
			return nil, err
		}
	}
	replaced := map[string]bool{}
	for _, name := range append([]string{s.file}, s.others...) {
		text, err := os.ReadFile(filepath.Join(checkout, s.folder, name))
		if err != nil {
			return nil, fmt.Errorf("%w: name the folder of the checkout", err)
		}
		var out [][]byte
		for line := range bytes.Lines(text) {
			if fields := bytes.Fields(line); len(fields) == 3 && string(fields[0]) == "#define" {
				name := string(fields[1])
				if number, ok := s.defines[name]; ok {
					line, replaced[name] = fmt.Appendf(nil, "#define %s %d\n", name, number), true
				}
			}
			out = append(out, line)
		}
		if err := os.WriteFile(filepath.Join(work, name), bytes.Join(out, nil), 0o600); err != nil {
			return nil, err
		}
	}
	if len(replaced) < len(s.defines) {
		return nil, fmt.Errorf("%s defines only %v of %v", filepath.Join(checkout, s.folder), replaced, s.defines)
	}
	arguments := []string{"-O2", "-g", "-w", "-target", "bpf", "-mcpu=v3", "-I", ".", "-c", s.file, "-o", "peer.o"}
	folders, err := filepath.Glob("/usr/include/*-linux-gnu") // Debian has asm/types.h in this folder
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		arguments = append(arguments, "-idirafter", folder)
	}
	clang := exec.Command("clang", arguments...)
	clang.Dir = work
	if out, err := clang.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("clang %s: %w\n%s", strings.Join(arguments, " "), err, out)
	}
	return ebpf.LoadCollectionSpec(filepath.Join(work, "peer.o"))
}
