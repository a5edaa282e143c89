package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// In chained mode the previous plugin owns the interface, its addresses and its routes. netcraq-cni
// only makes the interface a port of the switch, and returns the previous result unchanged.

// addChained implements ADD. It returns the previous result as it is, including unknown fields.
func addChained(c *config, args *skel.CmdArgs) error {
	if c.PrevResult == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "netcraq-cni is chained, but nothing is before it in the list of "+c.Name+": put it behind the plugin that makes the interface, or leave chained out", "")
	}
	result, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
	}
	req := &agentapi.Chain{Attachment: attachment(c, args), Pod: podOf(args.Args), Namespace: args.Netns}
	if req.Addresses, err = own(result, args); err != nil {
		return err
	}
	if err := c.agent().Chain(context.Background(), req); err != nil {
		return asCNI(err, types.ErrTryAgainLater)
	}
	var raw struct {
		PrevResult json.RawMessage `json:"prevResult"`
	}
	if err := json.Unmarshal(args.StdinData, &raw); err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
	}
	if _, err := os.Stdout.Write(raw.PrevResult); err != nil {
		return types.NewError(types.ErrIOFailure, "writing the result", err.Error())
	}
	return nil
}

// own returns the addresses that a result has for this call's interface. A result names the
// container's interface. With some plugins it names no interface in the container at all.
func own(r *current.Result, args *skel.CmdArgs) ([]agentapi.Address, error) {
	mine := func(i *int) bool {
		if i == nil {
			return true
		}
		if *i < 0 || *i >= len(r.Interfaces) {
			return false
		}
		f := r.Interfaces[*i]
		return f.Sandbox == "" || f.Name == args.IfName && f.Sandbox == args.Netns
	}
	var out []agentapi.Address
	for _, ip := range r.IPs {
		if !mine(ip.Interface) {
			continue
		}
		p, err := prefix(ip.Address)
		if err != nil {
			return nil, err
		}
		out = append(out, agentapi.Address{Prefix: p, Gateway: address(ip.Gateway)})
	}
	if len(out) == 0 {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("the result of the plugins before (prevResult) has no address of %s in %s", args.IfName, args.Netns), "")
	}
	return out, nil
}

// delChained implements DEL. If no agent runs, there is nothing to undo: the switch's program has
// ended with its agent, and the other plugin removes the interface together with the filters. The
// next agent forgets the record. So pods of another plugin can end without an agent.
func delChained(err error) error {
	if errors.Is(err, agentapi.ErrNotThere) {
		return nil
	}
	return asCNI(err, types.ErrTryAgainLater)
}

// checkChained implements CHECK. The other plugin checks its own part.
func checkChained(c *config, args *skel.CmdArgs) error {
	req := &agentapi.Check{Attachment: attachment(c, args), Namespace: args.Netns}
	if c.PrevResult != nil {
		result, err := current.NewResultFromResult(c.PrevResult)
		if err != nil {
			return types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
		}
		for _, f := range result.Interfaces {
			if f.Name == args.IfName && f.Sandbox == args.Netns {
				req.Container.MAC = f.Mac
			}
		}
	}
	return asCNI(c.agent().Check(context.Background(), req), types.ErrTryAgainLater)
}
