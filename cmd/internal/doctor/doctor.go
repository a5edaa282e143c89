// Package doctor checks a machine on which NetCRAQ runs or will run. It explains what is wrong and
// how to fix it. It changes nothing: when it returns, its probes have been unloaded from the
// kernel. It also reports everything that it has no permission to read.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Level is the severity of a finding.
type Level string

// The levels, from the best to the worst. Unseen is outside of this order.
const (
	OK      Level = "ok"      // nothing is wrong
	Note    Level = "note"    // information that requires no action
	Unseen  Level = "unseen"  // the check could not be made; the message says why
	Warning Level = "warning" // works, but with a disadvantage, or will soon stop working
	Problem Level = "problem" // NetCRAQ, or a part of it, does not work
)

// Finding is the result of one check.
type Finding struct {
	Check   string `json:"check"`             // name of the check (see Checks)
	Subject string `json:"subject,omitempty"` // the checked object: an interface, a file, a port
	Level   Level  `json:"level"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"` // the remedy, for Warning and Problem
}

// Report is the result of all checks.
type Report struct {
	Host     string    `json:"host"`
	Time     time.Time `json:"time"`
	Findings []Finding `json:"findings"`
}

// Count is the number of findings with a level.
func (r *Report) Count(l Level) (n int) {
	for _, f := range r.Findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

// Options configure the checks. The zero value checks this machine with the usual paths.
type Options struct {
	Checks     []string // names of the checks to run; empty means all
	Interfaces []string // names of interfaces; empty means all except loopback
	// Root is prepended to the paths of files outside of /proc, and Proc replaces /proc. They serve
	// tests, and machines whose files are mounted elsewhere.
	Root, Proc string

	Admin     string // address of the admin API, as for api.NewClient; "" means the usual sockets
	TokenFile string

	Etcd               []string // client URLs of etcd's members
	EtcdCA             string   // PEM file with CA certificates
	EtcdCert, EtcdKey  string
	Certificates       []Certificate // certificates to check in addition to the usual ones
	ServedCertificates []string      // HOST:PORT of TLS servers; empty means the agent at this machine's addresses

	Timeout time.Duration // timeout of each request; 0 means 2 s
	Now     func() time.Time
}

// Certificate is a certificate file to check.
type Certificate struct {
	File string
	Name string // host name or address that the certificate must be valid for; "" means any
}

// checks are all checks, in the order of the report: lower layers come first.
var checks = []Check[*look]{
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

// Checks lists the names and descriptions of the checks.
func Checks() [][2]string { return Describe(checks) }

// Run runs the checks. It returns an error only if an option is invalid. All other errors are
// findings.
func Run(ctx context.Context, o Options) (*Report, error) {
	chosen, err := Select(checks, o.Checks, "")
	if err != nil {
		return nil, err
	}
	l := newLook(o)
	for _, c := range chosen {
		l.check = c.Name
		c.Run(ctx, l)
	}
	return &l.report, ctx.Err()
}

// look is a run of the checks.
type look struct {
	Options
	report Report
	check  string // name of the running check
	probes probes

	holders map[int]holder // process that holds each program, by program ID (see programHolders)
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

// unseen reports that something could not be checked, and why.
func (l *look) unseen(subject, what string, err error) {
	advice := ""
	if denied(err) {
		advice = "run netcraqctl doctor as root to see it"
	}
	l.add(Unseen, subject, advice, "%s: %v", what, err)
}

// denied reports whether an error is due to missing privileges.
func denied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// path returns the full path of a file of the checked machine.
func (l *look) path(p string) string { return filepath.Join(l.Root, p) }

// proc returns the full path of a file in the checked machine's /proc.
func (l *look) proc(p ...string) string { return filepath.Join(append([]string{l.Proc}, p...)...) }
