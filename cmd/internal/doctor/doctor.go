// Package doctor checks a machine on which NetCRAQ runs or will run, and explains what is wrong
// there and what to do. It changes nothing: its probes are gone from the kernel when it returns.
// It names everything that it may not read.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Level says how much a finding matters.
type Level string

// The levels, from the best to the worst; Unseen is alongside them.
const (
	OK      Level = "ok"      // it is as it should be
	Note    Level = "note"    // good to know; there is nothing to do
	Unseen  Level = "unseen"  // it could not be checked; the message says why
	Warning Level = "warning" // it works, but not as well, or not for long
	Problem Level = "problem" // NetCRAQ, or a part of it, does not work like this
)

// Finding is the result of one check.
type Finding struct {
	Check   string `json:"check"`             // the name of a check, see Checks
	Subject string `json:"subject,omitempty"` // the checked object: an interface, a file, a port
	Level   Level  `json:"level"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"` // what to do, with Warning and Problem
}

// Report is all that was found.
type Report struct {
	Host     string    `json:"host"`
	Time     time.Time `json:"time"`
	Findings []Finding `json:"findings"`
}

// Count is how many findings have a level.
func (r *Report) Count(l Level) (n int) {
	for _, f := range r.Findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

// Options say where to look. The zero value is the machine itself, as it usually is.
type Options struct {
	Checks     []string // their names; none: all
	Interfaces []string // none: all but loopback
	// Root is put before the paths of files but those of /proc, and Proc is in the place of /proc:
	// for a machine whose files are mounted elsewhere, and for tests.
	Root, Proc string

	Admin     string // the admin API, as api.NewClient takes it; "": the usual sockets
	TokenFile string

	Etcd               []string // client URLS
	EtcdCA             string   // a file (PEM)
	EtcdCert, EtcdKey  string
	Certificates       []Certificate // besides those at the usual places
	ServedCertificates []string      // HOST:PORT of TLS servers; none: the agent's, at this machine's addresses

	Timeout time.Duration // of each request; 0: 2 s
	Now     func() time.Time
}

// Certificate is one to look at.
type Certificate struct {
	File string
	Name string // a host name or an address that it has to be valid for; "": any
}

// check looks at one thing.
type check struct {
	name string
	what string
	run  func(context.Context, *look)
}

// checks are all, in the order of the report: what is further below comes first.
var checks = []check{
	{"kernel", "version and features: eBPF at tc, tcx, BTF, helpers, lockdown", kernel},
	{"limits", "locked memory and open files, of the agent where it runs", limits},
	{"cgroups", "control groups, by which the node API knows pods", cgroups},
	{"sysctls", "forwarding, reverse path filters", sysctls},
	{"firewall", "whether a chain of nftables drops what pods send", firewall},
	{"interfaces", "MTU, tunnels, XDP of drivers", interfaces},
	{"hooks", "programs at interfaces (tcx, clsact, XDP), and their order", hooks},
	{"ports", "TCP and UDP ports that NetCRAQ takes: who has them", ports},
	{"cni", "the runtime's network configuration and plugins", cni},
	{"clocks", "synchronization; drift against the controller and etcd", clocks},
	{"certificates", "expiry and names, of files and of servers", certificates},
	{"sockets", "whether agent, controller and node API answer; full chains", sockets},
}

// Checks lists the checks: name and what each looks at.
func Checks() (out [][2]string) {
	for _, c := range checks {
		out = append(out, [2]string{c.name, c.what})
	}
	return out
}

// Run looks. It fails only for options that make no sense; whatever it meets is a finding.
func Run(ctx context.Context, o Options) (*Report, error) {
	for _, name := range o.Checks {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
			var have []string
			for _, c := range checks {
				have = append(have, c.name)
			}
			return nil, fmt.Errorf("there is no check %q; there are %s", name, strings.Join(have, ", "))
		}
	}
	l := newLook(o)
	for _, c := range checks {
		if len(o.Checks) == 0 || slices.Contains(o.Checks, c.name) {
			l.check = c.name
			c.run(ctx, l)
		}
	}
	return &l.report, ctx.Err()
}

// look is one run.
type look struct {
	Options
	report Report
	check  string // that is running
	probes probes

	holders map[int]holder // by program, see programHolders
}

func newLook(o Options) *look {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &look{Options: o, probes: kernelProbes}
	l.report.Time = o.Now()
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		l.report.Host = unix.ByteSliceToString(name.Nodename[:])
	}
	return l
}

func (l *look) add(level Level, subject, advice, format string, args ...any) {
	l.report.Findings = append(l.report.Findings, Finding{l.check, subject, level,
		fmt.Sprintf(format, args...), advice})
}

func (l *look) ok(subject, format string, args ...any) { l.add(OK, subject, "", format, args...) }

func (l *look) note(subject, format string, args ...any) { l.add(Note, subject, "", format, args...) }

func (l *look) warn(subject, advice, format string, args ...any) {
	l.add(Warning, subject, advice, format, args...)
}

func (l *look) problem(subject, advice, format string, args ...any) {
	l.add(Problem, subject, advice, format, args...)
}

// unseen reports what could not be checked, and why.
func (l *look) unseen(subject, what string, err error) {
	advice := ""
	if denied(err) {
		advice = "run netcraqctl doctor as root to see it"
	}
	l.add(Unseen, subject, advice, "%s: %v", what, err)
}

// denied says whether the privileges were missing for something.
func denied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// path is where a file of the machine's is.
func (l *look) path(p string) string { return filepath.Join(l.Root, p) }

// proc is where a file of /proc is.
func (l *look) proc(p ...string) string { return filepath.Join(append([]string{l.Proc}, p...)...) }
