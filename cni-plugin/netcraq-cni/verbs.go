package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// The addresses are asked for here and not in the agent, because this process runs where the IPAM
// plugins and their files are. So whatever becomes of the agent in the middle of an ADD, the
// addresses are given back: this process notices.

// attachment is what the runtime names.
func attachment(c *config, args *skel.CmdArgs) agentapi.Attachment {
	return agentapi.Attachment{Network: c.Name, ContainerID: args.ContainerID, IfName: args.IfName}
}

// podOf is the pod that the arguments of a Kubernetes runtime name (K8S_POD_NAMESPACE and its kin:
// a convention that containerd and CRI-O keep). They are for whoever wants them: what is not
// understood is no error.
func podOf(arguments string) agentapi.Pod {
	named := map[string]string{}
	for _, pair := range strings.Split(arguments, ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			named[name] = value
		}
	}
	return agentapi.Pod{Namespace: named["K8S_POD_NAMESPACE"], Name: named["K8S_POD_NAME"], UID: named["K8S_POD_UID"]}
}

// add: ADD, "Add container to network, or apply modifications".
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
	// Ask first: without the agent no address need be taken.
	if s, err := c.agent().Status(ctx); err != nil {
		return asCNI(err, types.ErrTryAgainLater)
	} else if !s.Ready {
		return types.NewError(types.ErrTryAgainLater, "the node agent is not ready: "+s.Reason, "")
	}
	// IPAM plugins find this out only after they have given an address, and then print a result and
	// an error, which nobody can read.
	own, nsErr := ns.CheckNetNS(args.Netns)
	if nsErr != nil {
		return nsErr
	}
	if own {
		return types.NewError(types.ErrInvalidNetNS, args.Netns+" is the node's own network namespace: a container on the host's network is attached to nothing", "")
	}
	// Whatever becomes of it, an address that is not used is given back, also where the IPAM plugin
	// says that it has failed: it may have given one before.
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
	req := &agentapi.Attach{Attachment: attachment(c, args), Pod: podOf(args.Args), Namespace: args.Netns, MTU: c.MTU}
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
	result.DNS = c.DNS
	return types.PrintResult(result, c.CNIVersion)
}

// del: DEL, "Remove container from network, or un-apply modifications". What is not there any more
// is no error. The addresses go after the interface: an address that is given to the next container
// must not be in use.
func del(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	ctx := context.Background()
	err = c.agent().Detach(ctx, attachment(c, args))
	if c.Chained {
		return delChained(err)
	}
	if err != nil {
		return asCNI(err, types.ErrTryAgainLater)
	}
	if err := invoke.DelegateDel(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		return fmt.Errorf("giving addresses back to %s: %w", c.IPAM.Type, err)
	}
	return nil
}

// check: CHECK, "Check container's networking is as expected". What is expected is the result of
// ADD.
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

// status: STATUS, "Check plugin status". Without the agent containers that are attached talk to
// each other as before, but not to the switches.
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

// collect: GC, "Clean up any stale resources". IPAM plugins that know no GC (host-local) are asked
// to give back the addresses of what was removed.
func collect(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	ctx := context.Background()
	req := &agentapi.Collect{Network: c.Name}
	for _, v := range c.ValidAttachments {
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
	var errs []error
	for _, a := range removed.Removed {
		if err := giveBack(ctx, c, args, a); err != nil {
			errs = append(errs, fmt.Errorf("giving addresses of %s back to %s: %w", a, c.IPAM.Type, err))
		}
	}
	if err := invoke.DelegateGC(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", c.IPAM.Type, err))
	}
	return errors.Join(errs...)
}

// giveBack is a DEL at the IPAM plugin for a container that nobody has named to us.
func giveBack(ctx context.Context, c *config, args *skel.CmdArgs, a agentapi.Attachment) error {
	path, err := invoke.FindInPath(c.IPAM.Type, filepath.SplitList(args.Path))
	if err != nil {
		return err
	}
	return invoke.ExecPluginWithoutResult(ctx, path, args.StdinData, &invoke.Args{Command: "DEL",
		ContainerID: a.ContainerID, IfName: a.IfName, Path: args.Path}, nil)
}
