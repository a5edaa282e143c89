package doctor

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/netcraq/netcraq/api/wire"
)

type port struct {
	protocol string
	number   int
	what     string
	option   string // the option that changes the port
}

// ourPorts are the default ports in docs/kubernetes.md and docs/operations.md.
var ourPorts = []port{
	{"tcp", 9559, "the switch's P4Runtime", "the agent's --p4runtime-port"},
	{"tcp", 9560, "the agent, for other agents", "the agent's --agent-port"},
	{"tcp", 9561, "the agent's health and metrics", "the agent's --health-port, and the probes in its manifest"},
	{"tcp", 20036, "the admin API and its page", "--admin"},
	{"tcp", 23790, "etcd-monitor, on control-plane nodes", "its --listen-client-urls, and the API server's --etcd-servers"},
	{"tcp", 23791, "etcd-monitor's metrics", "its --metrics-addr"},
	{"udp", wire.Port, "the chains' packets, which the switch takes before any socket", ""},
	{"udp", tunnelPort, "the tunnels between nodes (VXLAN)", ""},
}

func ports(_ context.Context, l *look) {
	taken := map[string][]int{} // inodes of sockets, by protocol and port
	for _, protocol := range []string{"tcp", "udp"} {
		err4 := l.sockets(protocol, protocol, taken)
		err6 := l.sockets(protocol, protocol+"6", taken)
		if err4 != nil || err6 != nil && !errors.Is(err6, os.ErrNotExist) {
			l.unseen(protocol, "listing sockets", errors.Join(err4, err6))
		}
	}
	wanted := map[int]bool{}
	for _, inodes := range taken {
		for _, i := range inodes {
			wanted[i] = true
		}
	}
	holders := l.socketHolders(wanted)
	for _, p := range ourPorts {
		l.port(p, taken[p.protocol+strconv.Itoa(p.number)], holders)
	}
}

// port reports which process uses a port.
func (l *look) port(p port, inodes []int, holders map[int]process) {
	name := p.protocol + " " + strconv.Itoa(p.number)
	if len(inodes) == 0 {
		l.ok(name, "free (%s)", p.what)
		return
	}
	inode := inodes[0]
	who, known := holders[inode]
	advice := "stop it"
	if p.option != "" {
		advice += ", or give another port by " + p.option
	}
	switch {
	case inode == 0 && p.number == tunnelPort:
		l.ok(name, "the kernel's, for tunnels")
	case !known && inode == 0:
		l.warn(name, "look for it in ip -d link", "the kernel has it, for a tunnel of somebody else's: %s need it", p.what)
	case !known:
		l.unseen(name, "it is taken; by whom", os.ErrPermission)
	case strings.HasPrefix(who.name, "netcraq") || strings.HasPrefix(who.name, "etcd-monitor") || who.name == "simple_switch_g" ||
		who.name == "simple_switch_grpc":
		l.ok(name, "%s, process %d (%s)", who.name, who.pid, p.what)
	case p.number == wire.Port:
		l.warn(name, "have it listen elsewhere: on a node whose switch is there it hears nothing",
			"%s, process %d, listens where the switch takes packets", who.name, who.pid)
	default:
		l.problem(name, advice, "%s, process %d, has it: %s cannot be served", who.name, who.pid, p.what)
	}
}

// TCPHolder returns the ID of the process that listens on a TCP port. It returns 0 if there is
// none, or if the process belongs to another user.
func TCPHolder(port int) (pid int) {
	l := newLook(Options{})
	taken := map[string][]int{}
	for _, file := range []string{"tcp", "tcp6"} {
		_ = l.sockets("tcp", file, taken) // an unreadable table counts as empty
	}
	wanted := map[int]bool{}
	for _, inode := range taken["tcp"+strconv.Itoa(port)] {
		wanted[inode] = true
	}
	for _, p := range l.socketHolders(wanted) {
		return p.pid
	}
	return 0
}

// sockets adds the inodes of the sockets in this thread's network namespace, by port. It counts
// listening TCP sockets and bound UDP sockets.
func (l *look) sockets(protocol, file string, to map[string][]int) error {
	f, err := os.Open(l.proc("thread-self/net", file))
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		const listens = "0A" // the kernel's value for TCP_LISTEN
		if len(fields) < 10 || protocol == "tcp" && fields[3] != listens {
			continue
		}
		_, digits, ok := strings.Cut(fields[1], ":")
		b, err := hex.DecodeString(digits)
		inode, err2 := strconv.Atoi(fields[9])
		if !ok || err != nil || err2 != nil || len(b) != 2 {
			continue // this is the header line
		}
		key := protocol + strconv.Itoa(int(b[0])<<8|int(b[1]))
		to[key] = append(to[key], inode)
	}
	return s.Err()
}

// socketHolders returns the processes that have the sockets with these inodes.
func (l *look) socketHolders(of map[int]bool) map[int]process {
	out := map[int]process{}
	if len(of) == 0 {
		return out
	}
	files, _ := filepath.Glob(l.proc("[0-9]*", "fd", "*"))
	for _, file := range files {
		to, err := os.Readlink(file)
		inside, ok := strings.CutPrefix(to, "socket:[")
		inode, err2 := strconv.Atoi(strings.TrimSuffix(inside, "]"))
		if err != nil || !ok || err2 != nil || !of[inode] {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
		if _, have := out[inode]; !have {
			out[inode] = process{pid, l.processName(pid)}
		}
	}
	return out
}
