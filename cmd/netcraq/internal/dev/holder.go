package dev

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// process names a process for people.
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

// inUse says who has the address that could not be listened on, and which flag chooses another one.
// Other errors stay as they are.
func inUse(err error, address, flag string) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	return fmt.Errorf("cannot listen on %s: %s has it. Stop it, or pass %s", address, process(holder(address)), flag)
}

// holder is the process that listens on a TCP address; 0: it is not known, because the process
// belongs to another user.
func holder(address string) int {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	var inodes []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		inodes = append(inodes, listening(table, n)...)
	}
	for _, inode := range inodes {
		links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && to == "socket:["+inode+"]" {
				pid, _ := strconv.Atoi(strings.Split(l, "/")[2])
				return pid
			}
		}
	}
	return 0
}

// listening are the inodes of sockets that listen on a port.
func listening(table string, port int) (inodes []string) {
	f, err := os.Open(table)
	if err != nil {
		return nil
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) < 10 || fields[3] != "0A" { // LISTEN
			continue
		}
		if strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
			inodes = append(inodes, fields[9])
		}
	}
	return inodes
}
