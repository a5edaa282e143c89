package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the man page anew")

const manPage = "netcraq-switch.8"

// TestManPage checks that the man page lists the present options. With -update, it rewrites the man
// page.
func TestManPage(t *testing.T) {
	want := man()
	if *update {
		if err := os.WriteFile(manPage, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(manPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the options say: go test -C switch ./cmd/netcraq-switch -run TestManPage -update",
			manPage)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skipf("groff is not installed, which would read the page: %v", err)
	}
	out, err := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", manPage).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("groff says: %v\n%s", err, out)
	}
}

// roff escapes text so that troff prints it unchanged.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	var lines []string
	for _, l := range strings.Split(s, "\n") {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			l = `\&` + l
		}
		lines = append(lines, l)
	}
	return strings.Join(lines, "\n")
}

func manOptions(b *bytes.Buffer, s *pflag.FlagSet) {
	s.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
		}
		fmt.Fprintf(b, "\n%s\n", roff(text))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			fmt.Fprintf(b, "(default %s)\n", roff(f.DefValue))
		}
	})
}

func man() []byte {
	f := newFlagSets(&options{})
	b := &bytes.Buffer{}
	fmt.Fprintf(b, `.TH NETCRAQ\-SWITCH 8 "" "NetCRAQ" "System Administration"
.SH NAME
netcraq\-switch \- run a P4 program on network interfaces
.SH SYNOPSIS
.B netcraq\-switch
[\fIoptions\fR] \fB\-i\fR \fIPORT\fR@\fIIFACE\fR ... \fIPROGRAM\fR.json [\fB\-\-\fR \fItarget options\fR]
.br
.B netcraq\-switch
[\fIoptions\fR] \fB\-i\fR \fIPORT\fR@\fIIFACE\fR ... \fB\-\-no\-p4\fR [\fB\-\-\fR \fItarget options\fR]
.SH DESCRIPTION
.B netcraq\-switch
is a P4 software switch. It runs what
.BR p4c\-bm2\-ss (1)
writes for a v1model program, in the kernel or in the process, and serves P4Runtime, and with
.B \-\-thrift\-port
what
.B simple_switch_CLI
and p4\-utils speak. The command line is that of BMv2's
.BR simple_switch_grpc .
.PP
When it is ready it prints one line on standard error that begins with "ready:".
.SH OPTIONS
`)
	manOptions(b, f.main)
	fmt.Fprint(b, ".SH TARGET OPTIONS\nThey come after\n.BR \\-\\- .\n")
	manOptions(b, f.target)
	fmt.Fprint(b, `.SH EXIT STATUS
.TP
.B 0
It was ended by SIGINT or SIGTERM.
.TP
.B 1
It could not start, or not go on.
.TP
.B 2
There is a mistake on the command line.
.SH EXAMPLES
Two ports, a controller on this machine, packet\-in and packet\-out on port 510:
.PP
.nf
netcraq\-switch \-i 1@s1\-eth1 \-i 2@s1\-eth2 \-\-device\-id 1 \-\-no\-p4 \-\- \e
    \-\-grpc\-server\-addr 127.0.0.1:50051 \-\-cpu\-port 510
.fi
.PP
Two ports, for
.BR simple_switch_CLI :
.PP
.nf
netcraq\-switch \-i 1@s1\-eth1 \-i 2@s1\-eth2 \-\-thrift\-port 9090 l2.json
.fi
`)
	return b.Bytes()
}
