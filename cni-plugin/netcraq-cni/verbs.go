package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// This process calls the IPAM plugin, and not the agent, because this process runs where the IPAM
// plugins and their files are. It can also return the addresses if the agent fails in the middle of
// an ADD.

// attachment returns the attachment that the runtime's arguments name.
func attachment(c *config, args *skel.CmdArgs) agentapi.Attachment {
	return agentapi.Attachment{Network: c.Name, ContainerID: args.ContainerID, IfName: args.IfName}
}

// podOf returns the pod in the arguments of a Kubernetes runtime (K8S_POD_NAMESPACE etc.). These
// arguments are a convention of containerd and CRI-O, and are optional. So podOf ignores arguments
// that it does not understand.
func podOf(arguments string) agentapi.Pod {
	named := map[string]string{}
	for _, pair := range strings.Split(arguments, ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			named[name] = value
		}
	}
	return agentapi.Pod{Namespace: named["K8S_POD_NAMESPACE"], Name: named["K8S_POD_NAME"], UID: named["K8S_POD_UID"]}
}

// add implements ADD, "Add container to network, or apply modifications".
func add(args *skel.CmdArgs) (err error) {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	if c.Chained {
		return addChained(c, args)
	}
	if c.PrevResult != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "netcraq-cni makes the container's interface: it has to be the first plugin of its list; behind another one it takes \"chained\": true", "")
	}
	ctx := context.Background()
	// The agent is checked first, because without an agent no address is needed.
	if s, err := c.agent().Status(ctx); err != nil {
		return asCNI(err, types.ErrTryAgainLater)
	} else if !s.Ready {
		return types.NewError(types.ErrTryAgainLater, "the node agent is not ready: "+s.Reason, "")
	}
	// IPAM plugins notice a wrong namespace only after they have allocated an address. They then
	// print a result and an error, which together cannot be parsed.
	own, nsErr := ns.CheckNetNS(args.Netns)
	if nsErr != nil {
		return nsErr
	}
	if own {
		return types.NewError(types.ErrInvalidNetNS, args.Netns+" is the node's own network namespace: a container on the host's network is attached to nothing", "")
	}
	// While this process has the lock, no other call works on this attachment. So any address that
	// IPAM has for it came from this call, unless the container is already attached. In that case
	// the address is in use.
	at := attachment(c, args)
	unlock, err := lock(c, at)
	if err != nil {
		return err
	}
	defer unlock()
	if attached(at) {
		return types.NewError(agentapi.CodeExists, fmt.Sprintf("%s is attached already: the runtime has to DEL it before it can ADD it again", at), "")
	}
	// If ADD fails, this returns the address. It does so even if the IPAM plugin has failed,
	// because the plugin may have allocated an address before its failure.
	defer func() {
		if err == nil {
			return
		}
		if e := invoke.DelegateDel(ctx, c.IPAM.Type, args.StdinData, nil); e != nil {
			fmt.Fprintf(os.Stderr, "giving addresses back to %s: %v\n", c.IPAM.Type, e)
		}
	}()
	given, err := invoke.DelegateAdd(ctx, c.IPAM.Type, args.StdinData, nil)
	if err != nil {
		return fmt.Errorf("asking %s for an address: %w", c.IPAM.Type, err)
	}
	result, err := current.NewResultFromResult(given)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, c.IPAM.Type+"'s result cannot be read", err.Error())
	}
	req := &agentapi.Attach{Attachment: at, Pod: podOf(args.Args), Namespace: args.Netns, MTU: c.MTU}
	if req.Addresses, err = addresses(result); err != nil {
		return err
	}
	if req.Routes, err = routes(result); err != nil {
		return err
	}
	attached, err := c.agent().Attach(ctx, req)
	if err != nil {
		return asCNI(err, types.ErrTryAgainLater)
	}
	result.Interfaces = []*current.Interface{
		{Name: attached.Host.Name, Mac: attached.Host.MAC, Mtu: attached.Host.MTU},
		{Name: attached.Container.Name, Mac: attached.Container.MAC, Mtu: attached.Container.MTU, Sandbox: args.Netns},
	}
	for i, ip := range result.IPs {
		ip.Interface = current.Int(1)
		ip.Gateway = net.IP(attached.Addresses[i].Gateway.AsSlice())
	}
	if !c.DNS.IsEmpty() { // if the list has no DNS settings, those of the IPAM plugin stay
		result.DNS = c.DNS
	}
	return types.PrintResult(result, c.CNIVersion)
}

// del implements DEL, "Remove container from network, or un-apply modifications". If the attachment
// no longer exists, this is not an error, and no agent is needed. del removes the interface before
// it releases the addresses, because an address must not be in use when the next container gets it.
func del(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	ctx := context.Background()
	at := attachment(c, args)
	if c.Chained {
		return delChained(c.agent().Detach(ctx, at))
	}
	unlock, err := lock(c, at)
	if err != nil {
		return err
	}
	defer unlock()
	err = c.agent().Detach(ctx, at)
	if errors.Is(err, agentapi.ErrNotThere) && !attached(at) {
		// This is the state after a reboot. The next agent forgets a record that has no interface.
		err = nil
	}
	if err != nil {
		return asCNI(err, types.ErrTryAgainLater)
	}
	if err := invoke.DelegateDel(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		return fmt.Errorf("giving addresses back to %s: %w", c.IPAM.Type, err)
	}
	return nil
}

// check implements CHECK, "Check container's networking is as expected". It compares the state with
// ADD's result.
func check(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	if c.Chained {
		return checkChained(c, args)
	}
	if c.PrevResult == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "CHECK needs the result of ADD (prevResult)", "")
	}
	result, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
	}
	ctx := context.Background()
	if err := invoke.DelegateCheck(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		return fmt.Errorf("%s: %w", c.IPAM.Type, err)
	}
	req := &agentapi.Check{Attachment: attachment(c, args), Namespace: args.Netns}
	inside := -1
	for i, f := range result.Interfaces {
		switch seen := (agentapi.Interface{Name: f.Name, MAC: f.Mac, MTU: f.Mtu}); {
		case f.Sandbox == args.Netns && f.Name == args.IfName:
			req.Container, inside = seen, i
		case f.Sandbox == "" && req.Host.Name == "":
			req.Host = seen
		}
	}
	if inside < 0 {
		return types.NewError(agentapi.CodeNotAsItWas, "the result of ADD has no interface "+args.IfName+" in "+args.Netns, "")
	}
	own := &current.Result{Routes: result.Routes}
	for _, ip := range result.IPs {
		if ip.Interface == nil || *ip.Interface == inside {
			own.IPs = append(own.IPs, ip)
		}
	}
	if req.Addresses, err = addresses(own); err != nil {
		return err
	}
	if req.Routes, err = routes(own); err != nil {
		return err
	}
	return asCNI(c.agent().Check(ctx, req), types.ErrTryAgainLater)
}

// status implements STATUS, "Check plugin status". Without the agent, attached containers still
// talk to each other, but not to the switches.
func status(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	ctx := context.Background()
	s, err := c.agent().Status(ctx)
	if err != nil {
		return asCNI(err, types.ErrLimitedConnectivity)
	}
	if !s.Ready {
		return types.NewError(types.ErrPluginNotAvailable, "the node agent is not ready: "+s.Reason, "")
	}
	if c.Chained {
		return nil
	}
	return invoke.DelegateStatus(ctx, c.IPAM.Type, args.StdinData, nil)
}

// lock waits until no other process of this plugin works on an attachment. It is needed because a
// call changes the addresses and the interface one after the other. Concurrent calls could
// otherwise return each other's addresses.
func lock(c *config, at agentapi.Attachment) (unlock func(), err error) {
	dir := filepath.Join(filepath.Dir(c.Socket), "locks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, types.NewError(types.ErrIOFailure, "making the folder for locks", err.Error())
	}
	// Attachments share a small number of lock files. A file cannot be removed while other
	// processes wait for it.
	name := at.HostName()
	f, err := os.OpenFile(filepath.Join(dir, name[len(name)-2:]), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, types.NewError(types.ErrIOFailure, "opening the lock of "+at.String(), err.Error())
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, types.NewError(types.ErrIOFailure, "locking "+at.String(), err.Error())
	}
	return func() { f.Close() }, nil
}

// attached reports whether the node's end of an attachment exists. It ignores the agent's records.
func attached(at agentapi.Attachment) bool {
	_, err := net.InterfaceByName(at.HostName())
	return err == nil
}

// collect implements GC, "Clean up any stale resources". Some IPAM plugins have no GC, for example
// host-local. For these, collect runs a DEL for each removed attachment, which returns the
// addresses.
func collect(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	valid, err := validAttachments(args.StdinData)
	if err != nil {
		return err
	}
	ctx := context.Background()
	req := &agentapi.Collect{Network: c.Name}
	for _, v := range valid {
		req.Valid = append(req.Valid, agentapi.Attachment{Network: c.Name, ContainerID: v.ContainerID,
			IfName: v.IfName})
	}
	removed, err := c.agent().Collect(ctx, req)
	if err != nil {
		return asCNI(err, types.ErrTryAgainLater)
	}
	if c.Chained {
		return nil
	}
	stale, err := staleLeases(c, args.StdinData, req.Valid)
	errs := []error{err}
	for _, a := range append(removed.Removed, stale...) {
		if err := giveBack(ctx, c, args, a); err != nil {
			errs = append(errs, fmt.Errorf("giving addresses of %s back to %s: %w", a, c.IPAM.Type, err))
		}
	}
	if err := invoke.DelegateGC(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", c.IPAM.Type, err))
	}
	return errors.Join(errs...)
}

// validAttachments returns the valid attachments in GC's arguments. The list is required, because
// GC without it would remove everything of the network. An empty list means that no container is
// left.
func validAttachments(stdin []byte) ([]types.GCAttachment, error) {
	named := map[string]json.RawMessage{}
	if err := json.Unmarshal(stdin, &named); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the network's configuration cannot be read", err.Error())
	}
	// The first printing of CNI 1.1 used the second name in one place. Runtimes write one of the
	// names, or both.
	const key, misprint = "cni.dev/valid-attachments", "cni.dev/attachments"
	text, ok := named[key]
	if !ok {
		text, ok = named[misprint]
	}
	if !ok {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "GC needs "+key+", the list of the attachments that stay; without it all containers of the network would lose their interfaces", "")
	}
	var valid []types.GCAttachment
	if err := json.Unmarshal(text, &valid); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, key+" cannot be read", err.Error())
	}
	return valid, nil
}

// staleLeases returns attachments that have leases of host-local but are not valid. host-local has
// no GC. A lease may be all that is left of an attachment, for example after a reboot or if ADD was
// killed.
func staleLeases(c *config, stdin []byte, valid []agentapi.Attachment) (stale []agentapi.Attachment, err error) {
	var conf struct {
		IPAM struct {
			Type    string `json:"type"`
			DataDir string `json:"dataDir"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(stdin, &conf); err != nil || conf.IPAM.Type != "host-local" {
		return nil, err
	}
	dir := filepath.Join(cmp.Or(conf.IPAM.DataDir, "/var/lib/cni/networks"), c.Name)
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for addresses that nobody has any more: %w", err)
	}
	for _, f := range files {
		if _, err := netip.ParseAddr(f.Name()); err != nil { // host-local's lock file, for example
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil { // the lease was returned meanwhile
			continue
		}
		// Before version 0.8 of the CNI plugins, host-local did not write the interface.
		id, name, _ := strings.Cut(strings.TrimSpace(string(text)), "\r\n")
		at := agentapi.Attachment{Network: c.Name, ContainerID: id, IfName: cmp.Or(name, "eth0")}
		stays := slices.ContainsFunc(valid, func(v agentapi.Attachment) bool {
			return v.ContainerID == id && (name == "" || v.IfName == name)
		})
		if !stays && !slices.Contains(stale, at) {
			stale = append(stale, at)
		}
	}
	return stale, nil
}

// giveBack runs the IPAM plugin's DEL for a stale container. It does nothing if the container was
// attached again meanwhile.
func giveBack(ctx context.Context, c *config, args *skel.CmdArgs, a agentapi.Attachment) error {
	unlock, err := lock(c, a)
	if err != nil {
		return err
	}
	defer unlock()
	if attached(a) {
		return nil
	}
	path, err := invoke.FindInPath(c.IPAM.Type, filepath.SplitList(args.Path))
	if err != nil {
		return err
	}
	return invoke.ExecPluginWithoutResult(ctx, path, args.StdinData, &invoke.Args{Command: "DEL",
		ContainerID: a.ContainerID, IfName: a.IfName, Path: args.Path}, nil)
}
