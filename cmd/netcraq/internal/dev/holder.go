package dev

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/netcraq/netcraq/cmd/internal/doctor"
)

// process returns a short description of a process for messages.
func process(pid int) string {
	if pid <= 0 {
		return "another process"
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), pid)
}

// cannotListen explains why listening on an address failed. If the address is in use, it names the
// process that uses it and the flag that sets another address.
func cannotListen(err error, address, flag string) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("cannot listen on %s: %w. Pass %s", address, err, flag)
	}
	return fmt.Errorf("cannot listen on %s: %s has it. Stop it, or pass %s", address, process(holder(address)), flag)
}

// holder returns the ID of the process that listens on a TCP address, or 0 if it is unknown.
func holder(address string) int {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return doctor.TCPHolder(n)
}
