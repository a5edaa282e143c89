package p4rtserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// config is a forwarding pipeline configuration. It has the P4Info bound to its program, the
// pipeline that runs the program, and the server's own data.
type config struct {
	*translate.Schema
	server *Server
	pipe   target.Pipeline
	// the configuration as the controller sent it, to be returned unchanged
	pushed *p4v1.ForwardingPipelineConfig

	entries             map[*translate.Table]map[string]*entryState
	defaults            map[*translate.Table]*defaultState
	actionProfileStates map[uint32]*actionProfileState
	multicast           map[uint32]*p4v1.MulticastGroupEntry
	clones              map[uint32]*p4v1.CloneSessionEntry
	digestStates        map[uint32]*digestState
	followers           map[followerKey]follower
	snapshots           snapshots
	// Set while some changes may not apply to every packet yet.
	unsettled atomic.Bool
}

// newConfig creates the configuration of a new pipeline. Its tables have only the entries that are
// part of the program.
func (s *Server) newConfig(sch *translate.Schema, pipe target.Pipeline,
	pushed *p4v1.ForwardingPipelineConfig) (*config, error) {
	c := &config{
		Schema: sch, server: s, pipe: pipe, pushed: pushed,
		entries: map[*translate.Table]map[string]*entryState{}, defaults: map[*translate.Table]*defaultState{},
		actionProfileStates: map[uint32]*actionProfileState{},
		multicast:           map[uint32]*p4v1.MulticastGroupEntry{},
		clones:              map[uint32]*p4v1.CloneSessionEntry{},
		digestStates:        map[uint32]*digestState{},
		followers:           map[followerKey]follower{},
	}
	for _, t := range sch.TableOrder {
		entries, err := pipe.Entries(t.Name)
		if err != nil {
			return nil, fmt.Errorf("reading the initial entries of table %s: %w", t.Name, err)
		}
		c.entries[t] = make(map[string]*entryState, len(entries))
		for i := range entries {
			c.entries[t][translate.MatchKey(entries[i].Match,
				entries[i].Priority)] = &entryState{spec: &entries[i]}
			if err := c.startIdle(t, &entries[i]); err != nil {
				return nil, fmt.Errorf("an initial entry of table %s: %w", t.Name, err)
			}
		}
	}
	for _, p := range sch.ProfileOrder {
		c.actionProfileStates[p.ID] = newActionProfileState()
	}
	for _, d := range sch.DigestOrder {
		c.digestStates[d.ID] = newDigestState(d, s.sendDigest)
	}
	return c, nil
}

// deviceConfig returns the BMv2 JSON in a p4_device_config. The JSON can be the bytes themselves,
// as for simple_switch_grpc and p4runtime-shell. Older controllers wrap it in the message
// p4.tmp.P4DeviceConfig (field 3, device_data) of PI's p4config.proto.
func deviceConfig(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil,
			errors.New("p4_device_config is empty; it has to be the BMv2 JSON of the program")
	}
	if t := bytes.TrimLeft(b, " \t\r\n"); len(t) > 0 && t[0] == '{' {
		return b, nil
	}
	var data []byte
	for rest := b; len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return nil, errNotJSON
		}
		rest = rest[n:]
		if num == 3 && typ == protowire.BytesType {
			v, n := protowire.ConsumeBytes(rest)
			if n < 0 {
				return nil, errNotJSON
			}
			data, rest = v, rest[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, rest); n < 0 {
			return nil, errNotJSON
		}
		rest = rest[n:]
	}
	if len(data) == 0 {
		return nil, errNotJSON
	}
	return data, nil
}

var errNotJSON = errors.New(
	"p4_device_config is neither BMv2 JSON nor a p4.tmp.P4DeviceConfig with BMv2 JSON in it; compile the program with p4c-bm2-ss")

// check parses a configuration and checks whether the device can run its program. It changes
// nothing.
func (s *Server) check(cfg *p4v1.ForwardingPipelineConfig) (*translate.Schema, error) {
	if cfg == nil {
		return nil, translate.Invalidf("the configuration is missing")
	}
	json, err := deviceConfig(cfg.P4DeviceConfig)
	if err != nil {
		return nil, translate.Invalidf("%v", err)
	}
	prog, err := bmv2json.Parse(json)
	if err != nil {
		return nil, translate.Invalidf("the program in p4_device_config: %v", err)
	}
	if cfg.P4Info == nil {
		return nil, translate.Invalidf("p4info is missing; p4c-bm2-ss writes it with --p4runtime-files")
	}
	sch, err := translate.Bind(cfg.P4Info, prog)
	if err != nil {
		return nil, translate.Invalidf("the P4Info does not describe the program in p4_device_config: %v", err)
	}
	if err := sch.ReadRestrictions(); err != nil {
		return nil, translate.Invalidf("the P4Info's restrictions: %v", err)
	}
	if err := s.dev.Verify(prog); err != nil {
		// By section 14, a configuration that cannot be realized is INVALID_ARGUMENT, whatever the
		// reason.
		return nil, translate.Invalidf("this device cannot run the program: %v", err)
	}
	return sch, nil
}

// SetForwardingPipelineConfig implements the RPC of that name (specification section 14). It checks
// the caller's rights and connection twice: before it parses and verifies the program, which takes
// a while, and before anything changes. It always finishes a commit that has begun.
func (s *Server) SetForwardingPipelineConfig(ctx context.Context,
	req *p4v1.SetForwardingPipelineConfigRequest) (*p4v1.SetForwardingPipelineConfigResponse,
	error) {
	s.state.Lock()
	defer s.state.Unlock()
	may := func() error {
		return s.mayExecute(ctx, req.DeviceId, keyOfRole(req.Role, configRoleID(req)), req.ElectionId)
	}
	if err := may(); err != nil {
		return nil, err
	}
	if err := s.configure(req, may); err != nil {
		st := translate.Canonical(err)
		s.log.Warn("pipeline refused", "action", req.Action, "code", st.Code(), "err", st.Message())
		return nil, st.Err()
	}
	s.log.Info("pipeline configuration", "action", req.Action)
	return &p4v1.SetForwardingPipelineConfigResponse{}, nil
}

// configure executes the request. may returns an error if the change must not begin any more.
func (s *Server) configure(req *p4v1.SetForwardingPipelineConfigRequest, may func() error) (err error) {
	defer s.catchPanic(&err)
	switch req.Action {
	case p4v1.SetForwardingPipelineConfigRequest_VERIFY:
		_, err = s.check(req.Config)
	case p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_SAVE:
		err = s.save(req.Config, may)
	case p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT:
		err = s.replace(req.Config, may)
	case p4v1.SetForwardingPipelineConfigRequest_COMMIT:
		err = s.commitSaved(req.Config)
	case p4v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT:
		err = s.reconcile(req.Config, may)
	default:
		err = translate.Invalidf(
			"the action is %v; it must be VERIFY, VERIFY_AND_SAVE, VERIFY_AND_COMMIT, COMMIT or RECONCILE_AND_COMMIT", req.Action)
	}
	return err
}

// catchPanic converts a panic of the engine to an INTERNAL error. So if a program triggers a defect
// of the engine, only that program is refused. The switch, and the agent that contains the engine,
// continue.
func (s *Server) catchPanic(err *error) {
	if fault := recover(); fault != nil {
		s.log.Error("the engine failed on a program; please report this", "panic", fault, "stack",
			string(debug.Stack()))
		*err = translate.Errorf(codes.Internal, "the engine failed on the program: %v; the switch's log has more, please report it",
			fault)
	}
}

// Load sets the configuration with which the device starts. It has the same effect as pushing cfg
// with VERIFY_AND_COMMIT.
func (s *Server) Load(cfg *p4v1.ForwardingPipelineConfig) (err error) {
	s.state.Lock()
	defer s.state.Unlock()
	defer s.catchPanic(&err)
	return s.replace(cfg, always)
}

// always allows every change. It is for changes for which no caller waits.
func always() error { return nil }

// replace commits cfg with empty state. may returns an error if the change must not begin any more.
func (s *Server) replace(cfg *p4v1.ForwardingPipelineConfig, may func() error) error {
	sch, err := s.check(cfg)
	if err != nil {
		return err
	}
	if err := may(); err != nil {
		return err
	}
	if err := s.dev.Commit(sch.Program); err != nil {
		return err
	}
	c, err := s.newConfig(sch, s.dev.Pipeline(), proto.CloneOf(cfg))
	if err != nil {
		return err
	}
	s.goLive(c)
	return nil
}

// goLive makes c the configuration to which P4Runtime's requests refer. c is nil if the program has
// no P4Info.
func (s *Server) goLive(c *config) {
	if s.live != nil {
		for _, d := range s.live.digestStates {
			d.configure(nil)
		}
	}
	s.live, s.saved = c, nil
	s.source, s.loaded, s.loadedSource = nil, nil, nil
	if c != nil {
		s.program.Store(c.Program)
	}
	s.current.Store(c)
}

// prepare builds the pipeline of cfg while the present pipeline is running.
func (s *Server) prepare(cfg *p4v1.ForwardingPipelineConfig) (*config, target.Preparer, error) {
	sch, err := s.check(cfg)
	if err != nil {
		return nil, nil, err
	}
	p, ok := s.dev.(target.Preparer)
	if !ok {
		return nil, nil, translate.Errorf(codes.Unimplemented,
			"the engine %q cannot prepare a pipeline beside the running one; use VERIFY_AND_COMMIT",
			s.dev.Engine())
	}
	pipe, err := p.Prepare(sch.Program)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.newConfig(sch, pipe, proto.CloneOf(cfg))
	return c, p, err
}

// save stores cfg, ready to run. Until cfg is committed, reads and writes refer to it, while
// packets still use the old configuration.
func (s *Server) save(cfg *p4v1.ForwardingPipelineConfig, may func() error) error {
	c, _, err := s.prepare(cfg)
	if err != nil {
		return err
	}
	if err := may(); err != nil {
		return err
	}
	s.saved = c
	s.loaded, s.loadedSource = nil, nil
	return nil
}

func (s *Server) commitSaved(cfg *p4v1.ForwardingPipelineConfig) error {
	if cfg != nil {
		return translate.Invalidf("COMMIT realises what was saved; no configuration may come with it")
	}
	if s.saved == nil {
		return translate.Errorf(codes.NotFound, "no configuration has been saved with VERIFY_AND_SAVE")
	}
	if err := s.dev.(target.Preparer).Activate(s.saved.pipe, nil); err != nil {
		return err
	}
	s.goLive(s.saved)
	return nil
}

// GetForwardingPipelineConfig implements the RPC of that name (specification section 15). It does
// not return a configuration that is saved but not committed, because the device does not run it.
func (s *Server) GetForwardingPipelineConfig(_ context.Context,
	req *p4v1.GetForwardingPipelineConfigRequest) (*p4v1.GetForwardingPipelineConfigResponse,
	error) {
	s.state.RLock()
	defer s.state.RUnlock()
	if err := s.checkDevice(req.DeviceId); err != nil {
		return nil, err
	}
	switch {
	case s.live == nil && s.dev.Pipeline() != nil:
		// BMv2 returns the same error, from which p4-utils detects that it must push a program's
		// P4Info.
		return nil, status.Error(codes.FailedPrecondition,
			"no forwarding pipeline config is set: the program that runs came without a P4Info")
	case s.live == nil:
		return &p4v1.GetForwardingPipelineConfigResponse{}, nil
	}
	full := s.live.pushed
	out := &p4v1.ForwardingPipelineConfig{Cookie: full.Cookie}
	switch req.ResponseType {
	case p4v1.GetForwardingPipelineConfigRequest_ALL:
		out = full
	case p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY:
	case p4v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE:
		out.P4Info = full.P4Info
	case p4v1.GetForwardingPipelineConfigRequest_DEVICE_CONFIG_AND_COOKIE:
		out.P4DeviceConfig = full.P4DeviceConfig
	default:
		return nil, status.Errorf(codes.InvalidArgument, "there is no response type %v",
			req.ResponseType)
	}
	return &p4v1.GetForwardingPipelineConfigResponse{Config: out}, nil
}
