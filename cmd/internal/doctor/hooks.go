package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// hooked is a program that is attached to an interface.
type hooked struct {
	hook string // for example "tcx ingress"
	id   int
	name string
}

// owners lists prefixes of programs' names, with the project that uses each prefix.
var owners = []struct{ prefix, owner string }{
	{"netcraq", "NetCRAQ"}, {"cil_", "Cilium"}, {"cali_", "Calico"}, {"calico", "Calico"}, {"tc_", ""},
	{"antrea", "Antrea"}, {"kube_", "kube-proxy"}, {"tail_", "Cilium"}, {"from-", "Cilium"},
}

func (h hooked) ours() bool { return strings.HasPrefix(h.name, "netcraq") }

func hooks(_ context.Context, l *look) {
	links, err := l.links()
	if err != nil {
		l.unseen("interfaces", "listing them", err)
		return
	}
	seen, failed := 0, map[string]error{}
	for _, k := range links {
		all, errs := programsAt(k)
		for hook, err := range errs {
			failed[hook] = err
		}
		seen += len(all)
		l.judge(k.Attrs().Name, all)
	}
	for hook, err := range failed {
		l.unseen(hook, "asking for its programs", err)
	}
	if seen == 0 && len(failed) == 0 {
		l.ok("interfaces", "no programs at any of %d", len(links))
	}
}

// judge reports how the programs attached to an interface affect NetCRAQ's programs.
func (l *look) judge(name string, all []hooked) {
	byHook := map[string][]hooked{}
	var order []string
	foreign, own := false, false
	for _, h := range all {
		if byHook[h.hook] == nil {
			order = append(order, h.hook)
		}
		byHook[h.hook] = append(byHook[h.hook], h)
		foreign, own = foreign || !h.ours(), own || h.ours()
	}
	for _, hook := range order {
		said := l.sequence(byHook[hook])
		switch {
		case !foreign:
			l.ok(name, "%s: %s", hook, said)
		case hook == "XDP" && !byHook[hook][0].ours():
			l.warn(name, "have it pass UDP of port 20035; a switch's port there needs --hook tc",
				"%s: %s sees frames before all else: what it drops or redirects reaches no chain", hook, said)
		default:
			advice := ""
			if own {
				advice = " (from left to right; each sees what those before it let through)"
			}
			l.note(name, "%s: %s%s", hook, said, advice)
		}
	}
	if tc, tcx := byHook["clsact ingress"], byHook["tcx ingress"]; len(tc) > 0 && len(tcx) > 0 {
		l.note(name, "what is at tcx runs before the filters of clsact")
	}
}

func (l *look) sequence(of []hooked) string {
	var out []string
	for _, h := range of {
		whose := ""
		for _, o := range owners {
			if strings.HasPrefix(h.name, o.prefix) && whose == "" {
				whose = o.owner
			}
		}
		name := h.name
		if name == "" {
			name = "a program without a name"
		}
		said := []string{fmt.Sprintf("id %d", h.id)}
		if whose != "" {
			said = append([]string{whose + "'s"}, said...)
		}
		if p, ok := l.programHolders()[h.id]; ok {
			said = append(said, fmt.Sprintf("held by %s, process %d", p.name, p.pid))
		}
		out = append(out, name+" ("+strings.Join(said, ", ")+")")
	}
	return strings.Join(out, ", ")
}

// programsAt returns the programs at an interface, and an error for each hook that could not be
// read.
func programsAt(k netlink.Link) (all []hooked, failed map[string]error) {
	failed = map[string]error{}
	a := k.Attrs()
	if a.Xdp != nil && a.Xdp.Attached {
		id := int(a.Xdp.ProgId)
		all = append(all, hooked{"XDP", id, programName(ebpf.ProgramID(id))})
	}
	for _, at := range []struct {
		name string
		to   ebpf.AttachType
	}{{"tcx ingress", ebpf.AttachTCXIngress}, {"tcx egress", ebpf.AttachTCXEgress}} {
		got, err := link.QueryPrograms(link.QueryOptions{Target: a.Index, Attach: at.to})
		if err != nil {
			if !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, os.ErrNotExist) {
				failed[at.name] = err
			}
			continue
		}
		for _, p := range got.Programs {
			all = append(all, hooked{at.name, int(p.ID), programName(p.ID)})
		}
	}
	for _, at := range []struct {
		name   string
		parent uint32
	}{{"clsact ingress", netlink.HANDLE_MIN_INGRESS}, {"clsact egress", netlink.HANDLE_MIN_EGRESS}} {
		filters, err := netlinkdump.Whole(func() ([]netlink.Filter, error) { return netlink.FilterList(k, at.parent) })
		if err != nil {
			failed[at.name] = err
			continue
		}
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); ok {
				name := programName(ebpf.ProgramID(b.Id))
				if name == "" {
					name = b.Name
				}
				all = append(all, hooked{at.name, b.Id, name})
			}
		}
	}
	return all, failed
}

// programName returns the name of a program, or "" if it has no name or its name cannot be read.
func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// holder is a process that has a program open, directly or through a link.
type holder = process

// programHolders returns the holder of each program. A pinned program may have no holder.
func (l *look) programHolders() map[int]holder {
	if l.holders != nil {
		return l.holders
	}
	l.holders = map[int]holder{}
	files, _ := filepath.Glob(l.proc("[0-9]*", "fdinfo", "*"))
	for _, file := range files {
		if id := programOf(file); id != 0 {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
			if _, ok := l.holders[id]; !ok && pid != os.Getpid() {
				l.holders[id] = holder{pid, l.processName(pid)}
			}
		}
	}
	return l.holders
}

// programOf returns the ID of the program that an open file refers to, or 0 if it refers to none.
func programOf(fdinfo string) int {
	f, err := os.Open(fdinfo)
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "prog_id:"); ok {
			id, _ := strconv.Atoi(strings.TrimSpace(rest))
			return id
		}
	}
	return 0
}
