package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/test/etcdsuite/inplace"
)

// The network has three switches in a row. Its only host is this process, which is connected to the
// first switch.
const (
	members     = 3
	hostIP      = "10.0.0.1"
	hostMAC     = "02:00:00:00:00:01"
	serviceIP   = "10.0.254.1"
	controlPort = 9559   // port of the first P4Runtime server; the next switches use the next ports
	slotCount   = 16_000 // number of slots, for the keys of all tests; each test uses new slots
	slotBatch   = 1000   // number of slots that one request creates
	// width of values in bits, which is the smallest profile into which a sealed cell fits
	profile   = "1024"
	startTime = time.Minute
)

// inNamespace runs the tests of a mode with placed keys in a separate network namespace, in another
// process of this program.
func (o *options) inNamespace(ctx context.Context, mode string) (results, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("placed keys take switches, and these network interfaces: run it as root, or with -modes straight,passed")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-inside", mode, "-out", o.out, "-engine", o.engine, "-suites",
		strings.Join(o.suites, ","), "-run", o.run.String(), "-limit", o.limit.String(), "-attempts", fmt.Sprint(o.attempts),
		"-gateway-flags", o.flags)
	cmd.Dir = o.root
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("in a network namespace: %w", err)
	}
	return o.earlier(mode)
}

// runInside starts the network in this process's namespace and runs the tests.
func (o *options) runInside(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // canceling ctx ends the processes
	dir, err := os.MkdirTemp("", "netcraq-suite")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	address, err := o.startNetwork(ctx, dir)
	if err != nil {
		return fmt.Errorf("the switches: %w", err)
	}
	path := filepath.Join(dir, "slots")
	if err := makeSlots(ctx, address, path); err != nil {
		return fmt.Errorf("slots for keys: %w", err)
	}
	env := append(o.environment(), inplace.EnvController+"="+address, inplace.EnvSlots+"="+path)
	if o.inside == byClient {
		return o.runClient(ctx, env)
	}
	_, err = o.packages(ctx, o.inside, env)
	return err
}

// startNetwork starts the switches and their controller, and returns the address of its admin API.
func (o *options) startNetwork(ctx context.Context, dir string) (string, error) {
	commands := [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", "h1", "address", hostMAC, "type", "veth", "peer", "name", "s1-1"},
		{"ip", "addr", "add", hostIP + "/32", "dev", "h1"},
	}
	for i := 1; i < members; i++ {
		commands = append(commands, []string{"ip", "link", "add", fmt.Sprintf("s%d-3", i), "type", "veth", "peer", "name", fmt.Sprintf("s%d-2", i+1)})
	}
	ports := map[int][]string{}
	for i := 1; i <= members; i++ {
		if i == 1 {
			ports[i] = append(ports[i], "1@s1-1")
		} else {
			ports[i] = append(ports[i], fmt.Sprintf("2@s%d-2", i))
		}
		if i < members {
			ports[i] = append(ports[i], fmt.Sprintf("3@s%d-3", i))
		}
		for _, p := range ports[i] {
			_, name, _ := strings.Cut(p, "@")
			commands = append(commands, []string{"sysctl", "-qw", "net.ipv6.conf." + name + ".disable_ipv6=1"}, []string{"ip", "link", "set", name, "up"})
		}
	}
	commands = append(commands,
		[]string{"sysctl", "-qw", "net.ipv6.conf.h1.disable_ipv6=1"},
		[]string{"ip", "link", "set", "h1", "up"},
		// All addresses are behind the switch. So there is one route, through a neighbour whose
		// Ethernet address does not matter.
		[]string{"ip", "route", "add", "10.0.0.0/8", "dev", "h1", "via", "10.255.255.254", "onlink"},
		[]string{"ip", "neigh", "add", "10.255.255.254", "lladdr", "02:00:00:00:ff:ff", "dev", "h1"})
	for _, c := range commands {
		if out, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, out)
		}
	}
	type m = map[string]any
	var switches []m
	var names []string
	var links [][]string
	for i := 1; i <= members; i++ {
		name, control := fmt.Sprintf("s%d", i), fmt.Sprintf("127.0.0.1:%d", controlPort+i)
		args := []string{"--engine", o.engine, "--device-id", fmt.Sprint(i), "--no-p4"}
		for _, p := range ports[i] {
			args = append(args, "-i", p)
		}
		if err := o.start(ctx, "ready:", "netcraq-switch", append(args, "--", "--grpc-server-addr", control, "--cpu-port", "510")...); err != nil {
			return "", err
		}
		names = append(names, name)
		switches = append(switches, m{"name": name, "p4runtime": control, "deviceId": i, "address": fmt.Sprintf("10.0.255.%d", i)})
		if i > 1 {
			links = append(links, []string{fmt.Sprintf("s%d:3", i-1), name + ":2"})
		}
	}
	program := filepath.Join(o.root, "p4src", "compiled", "netcraq-"+profile)
	b, err := json.Marshal(m{
		"program":  m{"profile": profile, "json": program + ".json.gz", "p4info": program + ".p4info.txtpb"},
		"switches": switches, "links": links,
		"hosts":  []m{{"name": "h1", "ip": hostIP, "mac": hostMAC, "port": "s1:1"}},
		"chains": []m{{"id": 1, "name": "main", "address": serviceIP, "members": names}},
		// short, because gateways start often, and end without releasing their sessions
		"sessions": m{"ttlSeconds": 2},
	})
	if err != nil {
		return "", err
	}
	topology, socket := filepath.Join(dir, "net.json"), "unix://"+filepath.Join(dir, "admin")
	if err := os.WriteFile(topology, b, 0o600); err != nil {
		return "", err
	}
	return socket, o.start(ctx, "ready:", "netcraq-controller", "--topology", topology, "--admin", socket, "--log-level", "warn")
}

// start starts one of the project's commands and waits for a line that begins with `begins`.
func (o *options) start(ctx context.Context, begins, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, o.path("bin", name), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := os.OpenFile(o.path("network.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		return err
	}
	ready := make(chan error, 1)
	go func() {
		defer out.Close()
		said := ""
		for in := bufio.NewScanner(read); in.Scan(); {
			fmt.Fprintln(out, in.Text())
			if said = in.Text(); strings.HasPrefix(said, begins) {
				ready <- nil
			}
		}
		select {
		case ready <- fmt.Errorf("%s ended: %w: %s", name, cmd.Wait(), said):
		default:
		}
	}()
	select {
	case err := <-ready:
		return err
	case <-time.After(startTime):
		return fmt.Errorf("%s is not ready after %v", name, startTime)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// makeSlots makes the controller create unused slots, and writes them to a file.
func makeSlots(ctx context.Context, address, path string) error {
	c := admin.NewClient(address)
	defer c.Close()
	for first := 0; first < slotCount; first += slotBatch {
		var keys []admin.KeySpec
		for i := range slotBatch {
			keys = append(keys, admin.KeySpec{Name: fmt.Sprintf("slot-%d", first+i), Value: []byte(slotcodec.Unsealed)})
		}
		made, err := c.AddKeys(ctx, "main", keys)
		if err != nil {
			return err
		}
		for _, k := range made {
			if k.Error != nil {
				return fmt.Errorf("%s: %w", k.Name, k.Error)
			}
		}
	}
	entries, err := readSlots(ctx, c)
	for end := time.Now().Add(startTime); err == nil && len(entries) < slotCount && time.Now().Before(end); {
		// On a busy machine, the switches report the slots one after the other.
		time.Sleep(time.Second)
		entries, err = readSlots(ctx, c)
	}
	if err != nil {
		return err
	}
	if len(entries) < slotCount {
		return fmt.Errorf("of %d slots %d say in which version they were made", slotCount, len(entries))
	}
	return inplace.WriteSlots(path, entries)
}

// readSlots returns the created slots, with the version that each got when it was created.
func readSlots(ctx context.Context, c *admin.Client) (entries []placement.Entry, err error) {
	made, err := c.Directory(ctx, "slot-", true)
	if err != nil {
		return nil, err
	}
	for _, k := range made {
		for _, s := range k.State {
			if s.Status == "OK" && s.Version == s.Newest && string(s.Value) == slotcodec.Unsealed {
				entries = append(entries, placement.Entry{ID: k.KeyID, Chain: "main", Version: s.Version})
				break
			}
		}
	}
	return entries, nil
}
