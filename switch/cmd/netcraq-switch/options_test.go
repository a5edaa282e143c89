package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/ebpf"
)

// forms are command lines to parse. The first three come from p4lang/tutorials, p4-utils and ONOS.
// If refused is set, it is the expected error.
var forms = []struct {
	line    string
	want    options
	refused string
	ours    bool // set if BMv2 lacks the option, or accepts a command line that this switch refuses
}{
	{line: "-i 1@s1-eth1 -i 2@s1-eth2 --pcap /var/pcaps --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0 " +
		"build/basic.json --log-console --thrift-port 9090 -- --grpc-server-addr 0.0.0.0:50051 --cpu-port " +
		"510 --priority-queues 8",
		want: options{ports: []portSpec{{1, "s1-eth1"}, {2, "s1-eth2"}}, pcap: "/var/pcaps",
			thrift: thriftOptions{port: 9090}, json: "build/basic.json", logConsole: true, cpuPort: 510,
			priorities: 8, nanolog: "ipc:///tmp/bm-0-log.ipc",
			grpc: grpcOptions{addr: "0.0.0.0:50051"}}},
	{line: "-i 1@s1-eth1 --pcap=pcap --thrift-port 9090 --nanolog ipc:///tmp/bm-1-log.ipc --device-id 1 " +
		"l2.json --debugger --log-console -- --grpc-server-addr 0.0.0.0:9559",
		want: options{ports: []portSpec{{1, "s1-eth1"}}, pcap: "pcap", deviceID: 1, json: "l2.json",
			nanolog: "ipc:///tmp/bm-1-log.ipc", thrift: thriftOptions{port: 9090}, logConsole: true, grpc: grpcOptions{addr: "0.0.0.0:9559"}}},
	{line: "--device-id 1 -i 1@s1-eth1 --thrift-port 44321 --notifications-addr ipc:///tmp/bmv2-1.ipc " +
		"--log-console -Lwarn --no-p4 -- --cpu-port 255 --grpc-server-addr 0.0.0.0:50001",
		want: options{ports: []portSpec{{1, "s1-eth1"}}, deviceID: 1, noP4: true, logConsole: true,
			thrift: thriftOptions{port: 44321, notifications: "ipc:///tmp/bmv2-1.ipc"}, cpuPort: 255, grpc: grpcOptions{addr: "0.0.0.0:50001"}}},

	{line: "--thrift-port 9091 p.json", want: options{thrift: thriftOptions{port: 9091},
		json: "p.json"}},
	{line: "--thrift-port 9091 --thrift-addr 0.0.0.0 p.json -- --disable-swap", ours: true,
		want: options{thrift: thriftOptions{port: 9091, addr: "0.0.0.0", swapDisabled: true},
			json: "p.json"}},
	{line: "--thrift-port 65536 p.json", refused: "it is too large", ours: true},

	{line: "--pcap dir p.json", want: options{pcap: "dir", json: "p.json"}},
	{line: "--pcap=dir p.json", want: options{pcap: "dir", json: "p.json"}},
	{line: "p.json --pcap", want: options{pcap: ".", json: "p.json"}},
	{line: "--pcap --device-id 2 p.json", want: options{pcap: ".", deviceID: 2, json: "p.json"}},
	{line: "--pcap -i 1@e p.json", want: options{pcap: ".", ports: []portSpec{{1, "e"}},
		json: "p.json"}},
	{line: "--pcap p.json", refused: `the word behind --pcap, "p.json", is its directory`},
	{line: "--no-p4 --pcap -- --drop-port 3", want: options{noP4: true, pcap: ".", dropPort: 3}},

	{line: "--no-p4 p.json", want: options{noP4: true, unused: "p.json"}},
	{line: "--device-id=3 p.json", want: options{deviceID: 3, json: "p.json"}},
	{line: "--device-id 010 p.json", want: options{deviceID: 10, json: "p.json"}},
	{line: "--device-id 08 -i1@e -i02@f p.json",
		want: options{deviceID: 8, ports: []portSpec{{1, "e"}, {2, "f"}}, json: "p.json"}},
	{line: "--dump-packet-data 64 -L off p.json", want: options{dump: 64, logOff: true,
		json: "p.json"}},
	// The abbreviation --log-f is ambiguous: it could stand for --log-file or --log-flush.
	{line: "--device 4 --pca dir --log-f x p.json", refused: "unknown flag: --log-f"},
	{line: "--device 4 --pca dir --log-con p.json",
		want: options{deviceID: 4, pcap: "dir", logConsole: true, json: "p.json"}},
	{line: "--log-file log --log-flush --log-file-max-size 1000 --log-file-max-files 2 --max-port-count 64 p.json",
		want: options{logFile: "log", json: "p.json"}},
	{line: "--debugger-addr ipc:///tmp/x p.json", want: options{json: "p.json"}},
	{line: "p.json -- --disable-swap --max-mc-groups 5 --max-l1-entries 5 --max-l2-entries 5 --dp-grpc-server-addr 0.0.0.0:1",
		want: options{json: "p.json", thrift: thriftOptions{swapDisabled: true}}},
	// ours is set because the test itself runs BMv2 with --help
	{line: "-h", want: options{help: true}, ours: true},
	{line: "--no-p4 -v", want: options{version: true, noP4: true}},
	{line: "--json-version", want: options{jsonVer: true}},

	{line: "p.json -- --cpu 7", want: options{json: "p.json", cpuPort: 7}},
	{line: "p.json --cpu-port 7", refused: "unknown flag: --cpu-port: write it after --"},
	{line: "--device-id 0x10 p.json", refused: "it is not a number"},
	{line: "--device-id p.json", refused: "it is not a number"},
	{line: "-i e@1 p.json", refused: "-i takes PORT@IFACE"},
	{line: "-i 1 p.json", refused: "-i takes PORT@IFACE"},
	// BMv2 detects these errors only later.
	{line: "--log-level loud p.json", refused: "not \"loud\"", ours: true},
	{line: "-i 1@e -i 1@f p.json", refused: "port 1 is given twice", ours: true},
	{line: "-i 510@e p.json -- --cpu-port 510", refused: "is the CPU port", ours: true},
	{line: "p.json -- --load-modules x.so", refused: "--load-modules is not supported", ours: true},
	{line: "--use-files 1 p.json", refused: "--use-files is not supported", ours: true},
	{line: "--engine interp --hook xdp --only-udp 4001 p.json",
		want: options{engine: "interp", hook: ebpf.HookXDP, onlyUDP: 4001, json: "p.json"},
		ours: true},
	{line: "--only-udp 65536 p.json", refused: "it is too large", ours: true},
	// BMv2 passes the second program to the target.
	{line: "a.json b.json", refused: "one program at most", ours: true},
	{line: "--nonsense p.json", refused: "unknown flag: --nonsense"},
	{line: "p.json -- --priority-queues 0", refused: "--priority-queues is 1 to 64, not 0", ours: true},
	{line: "p.json -- --priority-queues 65", refused: "--priority-queues is 1 to 64, not 65", ours: true},
	{line: "", refused: "no program", ours: true},
}

func TestCommandLines(t *testing.T) {
	for _, f := range forms {
		o, err := parseOptions(strings.Fields(f.line))
		if f.refused != "" {
			if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), f.refused) {
				t.Errorf("%s: %v, not %q", f.line, err, f.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", f.line, err)
			continue
		}
		want := f.want
		if want.engine == "" {
			want.engine = "auto"
		}
		want.grpc.given = want.grpc.addr != ""
		want.thrift.notificationsGiven = strings.Contains(f.line, "--notifications-addr")
		if want.thrift.port != 0 && want.thrift.notifications == "" {
			want.thrift.notifications = fmt.Sprintf("ipc:///tmp/bmv2-%d-notifications.ipc",
				want.deviceID)
		}
		if want.grpc.addr == "" {
			want.grpc.addr = defaultAddr
		}
		if want.thrift.addr == "" {
			want.thrift.addr = defaultThriftAddr
		}
		if want.dropPort == 0 {
			want.dropPort = defaultDropPort
		}
		want.priorities = max(want.priorities, 1)
		if want.maxConnections == 0 {
			want.maxConnections = defaultConnections
		}
		o.ignored, o.logLevel = nil, 0
		if !reflect.DeepEqual(*o, want) {
			t.Errorf("%s:\n%+v, not\n%+v", f.line, *o, want)
		}
	}
}

// TestCommandLinesOfBMv2 checks, if BMv2 is installed, which of these command lines BMv2 accepts.
// It adds --help, so that BMv2 exits after reading its options.
func TestCommandLinesOfBMv2(t *testing.T) {
	binary, err := exec.LookPath("simple_switch_grpc")
	if err != nil {
		t.Skipf("BMv2 is not installed: %v", err)
	}
	help, err := exec.Command(binary, "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forms {
		if f.ours {
			continue
		}
		args := strings.Fields(f.line)
		if i := slices.Index(args, "--"); i >= 0 {
			args = args[:i]
		}
		for _, x := range foreign { // some builds of BMv2 lack some options
			i := slices.Index(args, "--"+x.name)
			switch {
			case i < 0 || strings.Contains(string(help), "--"+x.name+" "):
			case x.hasValue:
				args = slices.Delete(args, i, i+2)
			default:
				args = slices.Delete(args, i, i+1)
			}
		}
		// BMv2 refuses "--pcap p.json" only later, when it looks for the directory.
		if f.refused != "" && strings.Contains(f.refused, "--pcap") {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		out, err := exec.CommandContext(ctx, binary, append(args, "--help")...).CombinedOutput()
		cancel()
		if (err == nil) != (f.refused == "") {
			t.Errorf("%s: BMv2 says %v, %.60q, we %q", f.line, err, out, f.refused)
		}
	}
}
