package bmthrift

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/netcraq/netcraq/switch/bmthrift/gen/simpleswitch"
	"github.com/netcraq/netcraq/switch/bmthrift/gen/standard"
	"github.com/netcraq/netcraq/switch/target"
)

// sessionOf is what a mirroring session copies to.
func sessionOf(m mirror, groups map[uint32][]target.Replica) *target.CloneSession {
	s := &target.CloneSession{Replicas: []target.Replica{}}
	if m.port != nil {
		s.Replicas = append(s.Replicas, target.Replica{Port: uint32(*m.port)})
	}
	s.Replicas = append(s.Replicas, groups[m.group]...)
	return s
}

// setMirror makes a session, or changes it.
func (h *handler) setMirror(id int32, port, group *int32) error {
	return h.write(0, func(p target.Pipeline) error {
		if id < 0 {
			return fmt.Errorf("mirroring session %d: %w", id, target.ErrOutOfRange)
		}
		m := mirror{port: port}
		if port != nil && *port < 0 {
			return fmt.Errorf("port %d: %w", *port, target.ErrOutOfRange)
		}
		if group != nil {
			if *group < 1 || *group > maxRID {
				return errGroupID
			}
			m.group = uint32(*group)
		}
		if err := p.SetCloneSession(uint32(id), sessionOf(m, p.MulticastGroups())); err != nil {
			return err
		}
		delete(h.mc.mirrors, uint32(id))
		if m.group != 0 {
			h.mc.mirrors[uint32(id)] = m
		}
		return nil
	})
}

func (h *handler) deleteMirror(id int32) error {
	return h.write(0, func(p target.Pipeline) error {
		if _, ok := p.CloneSessions()[uint32(id)]; !ok {
			return notMirrored(id)
		}
		delete(h.mc.mirrors, uint32(id))
		return p.SetCloneSession(uint32(id), nil)
	})
}

func notMirrored(id int32) error {
	return &explained{&simpleswitch.MirroringError{
		Code: simpleswitch.MirroringCode_SESSION_NOT_FOUND},
		fmt.Sprintf("there is no mirroring session %d", id)}
}

func (h *handler) getMirror(id int32) (out *simpleswitch.MirroringConfig, err error) {
	err = h.read(0, func(p target.Pipeline) error {
		s, ok := p.CloneSessions()[uint32(id)]
		if !ok {
			return notMirrored(id)
		}
		out = &simpleswitch.MirroringConfig{}
		if m, ok := h.mc.mirrors[uint32(id)]; ok {
			group := int32(m.group)
			out.Mgid, out.Port = &group, m.port
			return nil
		}
		// What P4Runtime has made may have more copies than this can say.
		if len(s.Replicas) > 0 {
			port := int32(s.Replicas[0].Port)
			out.Port = &port
		}
		if len(s.Replicas) > 1 {
			return unsupported("mirroring session %d copies to %d ports; read it over P4Runtime",
				id, len(s.Replicas))
		}
		return nil
	})
	return out, err
}

// MirroringSessionAdd implements the call of that name.
func (h *handler) MirroringSessionAdd(_ context.Context, id int32,
	c *simpleswitch.MirroringConfig) error {
	err := h.setMirror(id, c.Port, c.Mgid)
	if errors.Is(err, target.ErrOutOfRange) || errors.Is(err, errGroupID) {
		err = &explained{&simpleswitch.MirroringError{
			Code: simpleswitch.MirroringCode_SESSION_NOT_FOUND}, err.Error()}
	}
	return h.refused("mirroring_session_add", err)
}

// MirroringSessionDelete implements the call of that name.
func (h *handler) MirroringSessionDelete(_ context.Context, id int32) error {
	return h.refused("mirroring_session_delete", h.deleteMirror(id))
}

// MirroringSessionGet implements the call of that name.
func (h *handler) MirroringSessionGet(_ context.Context,
	id int32) (*simpleswitch.MirroringConfig, error) {
	out, err := h.getMirror(id)
	return out, h.refused("mirroring_session_get", err)
}

// The older calls say how it went by a number.
const (
	mirrorDone   = 0
	mirrorFailed = 1
)

// MirroringMappingAdd implements the call of that name.
func (h *handler) MirroringMappingAdd(_ context.Context, id, port int32) (int32, error) {
	if err := h.setMirror(id, &port, nil); err != nil {
		_ = h.refused("mirroring_mapping_add", err)
		return mirrorFailed, nil
	}
	return mirrorDone, nil
}

// MirroringMappingDelete implements the call of that name.
func (h *handler) MirroringMappingDelete(_ context.Context, id int32) (int32, error) {
	if err := h.deleteMirror(id); err != nil {
		_ = h.refused("mirroring_mapping_delete", err)
		return mirrorFailed, nil
	}
	return mirrorDone, nil
}

// MirroringMappingGetEgressPort implements the call of that name; -1 stands for no port.
func (h *handler) MirroringMappingGetEgressPort(_ context.Context, id int32) (int32, error) {
	c, err := h.getMirror(id)
	if err != nil || c.Port == nil {
		return -1, nil
	}
	return *c.Port, nil
}

// setQueues changes queues between ingress and egress: of a port, and of a priority; nil stands for
// all. The calls say how it went by a number, and clients do not look at it: so what is refused is
// an exception.
func (h *handler) setQueues(call string, port, priority *int32,
	do func(q target.QueueSetter, port *uint32, priority *int) error) (int32, error) {
	q, ok := h.dev.(target.QueueSetter)
	if !ok {
		return 1, h.refused(call, unsupported("%s has no queues between ingress and egress, and so "+
			"no depths and rates of them; start with --engine interp", h.dev.Engine()))
	}
	var ofPort *uint32
	if port != nil {
		if *port < 0 {
			return 1, h.refused(call, unsupported("port %d: there is none below 0", *port))
		}
		n := uint32(*port)
		ofPort = &n
	}
	var ofPriority *int
	if priority != nil {
		n := int(*priority)
		ofPriority = &n
	}
	if err := do(q, ofPort, ofPriority); err != nil {
		return 1, h.refused(call, unsupported("%v", err))
	}
	return 0, nil
}

func (h *handler) setDepth(call string, port, priority *int32, depth int32) (int32, error) {
	return h.setQueues(call, port, priority,
		func(q target.QueueSetter, port *uint32, priority *int) error {
			return q.SetQueueDepth(port, priority, int(depth))
		})
}

func (h *handler) setRate(call string, port, priority *int32, rate int64) (int32, error) {
	return h.setQueues(call, port, priority,
		func(q target.QueueSetter, port *uint32, priority *int) error {
			if rate < 0 {
				return fmt.Errorf("a rate of %d packets a second: %w", rate, target.ErrInvalid)
			}
			return q.SetQueueRate(port, priority, uint64(rate))
		})
}

// SetEgressPriorityQueueDepth implements the call of that name.
func (h *handler) SetEgressPriorityQueueDepth(_ context.Context, port, priority,
	depth int32) (int32, error) {
	return h.setDepth("set_egress_priority_queue_depth", &port, &priority, depth)
}

// SetEgressQueueDepth implements the call of that name.
func (h *handler) SetEgressQueueDepth(_ context.Context, port, depth int32) (int32, error) {
	return h.setDepth("set_egress_queue_depth", &port, nil, depth)
}

// SetAllEgressQueueDepths implements the call of that name.
func (h *handler) SetAllEgressQueueDepths(_ context.Context, depth int32) (int32, error) {
	return h.setDepth("set_all_egress_queue_depths", nil, nil, depth)
}

// SetEgressPriorityQueueRate implements the call of that name.
func (h *handler) SetEgressPriorityQueueRate(_ context.Context, port, priority int32,
	rate int64) (int32, error) {
	return h.setRate("set_egress_priority_queue_rate", &port, &priority, rate)
}

// SetEgressQueueRate implements the call of that name.
func (h *handler) SetEgressQueueRate(_ context.Context, port int32, rate int64) (int32, error) {
	return h.setRate("set_egress_queue_rate", &port, nil, rate)
}

// SetAllEgressQueueRates implements the call of that name.
func (h *handler) SetAllEgressQueueRates(_ context.Context, rate int64) (int32, error) {
	return h.setRate("set_all_egress_queue_rates", nil, nil, rate)
}

// GetTimeElapsedUs implements the call of that name.
func (h *handler) GetTimeElapsedUs(context.Context) (int64, error) {
	return h.dev.Now().Microseconds(), nil
}

// GetTimeSinceEpochUs implements the call of that name.
func (h *handler) GetTimeSinceEpochUs(context.Context) (int64, error) {
	return h.began.Add(h.dev.Now()).UnixMicro(), nil
}

func portFailure(format string, args ...any) error {
	return &explained{&standard.PortError{Code: standard.PortCode_ERROR},
		fmt.Sprintf(format, args...)}
}

// BmDevMgrAddPort implements the call of that name.
func (h *handler) BmDevMgrAddPort(_ context.Context, iface string, port int32,
	pcap string) error {
	var err error
	switch {
	case pcap != "":
		err = portFailure("a port that is added cannot be recorded; start the switch with --pcap")
	case port < 0 || port >= maxPorts:
		err = portFailure("a port is 0 to %d, not %d", maxPorts-1, port)
	default:
		if e := h.dev.AddPort(target.Port{Number: uint32(port), Iface: iface}); e != nil {
			err = portFailure("%v", e)
		}
	}
	return h.refused("bm_dev_mgr_add_port", err)
}

// BmDevMgrRemovePort implements the call of that name.
func (h *handler) BmDevMgrRemovePort(_ context.Context, port int32) error {
	var err error
	if e := h.dev.RemovePort(uint32(port)); e != nil {
		err = portFailure("%v", e)
	}
	return h.refused("bm_dev_mgr_remove_port", err)
}

// BmDevMgrShowPorts implements the call of that name.
func (h *handler) BmDevMgrShowPorts(context.Context) ([]*standard.PortInfo, error) {
	out := []*standard.PortInfo{}
	for p := range h.dev.Ports() {
		link, err := net.InterfaceByName(p.Iface)
		out = append(out, &standard.PortInfo{PortNum: int32(p.Number), IfaceName: p.Iface,
			IsUp:  err == nil && link.Flags&net.FlagUp != 0 && link.Flags&net.FlagRunning != 0,
			Extra: map[string]string{}})
	}
	slices.SortFunc(out, func(a, b *standard.PortInfo) int { return int(a.PortNum - b.PortNum) })
	return out, nil
}

// BmMgmtGetInfo implements the call of that name.
func (h *handler) BmMgmtGetInfo(context.Context) (*standard.SwitchInfo, error) {
	info := &standard.SwitchInfo{DeviceID: int64(h.opts.DeviceID), ThriftPort: int32(h.port)}
	if h.opts.Notifications != "" {
		info.NotificationsSocket = &h.opts.Notifications
	}
	return info, nil
}

func swapError(code standard.SwapCode, format string, args ...any) error {
	return &explained{&standard.SwapError{Code: code}, fmt.Sprintf(format, args...)}
}

// BmLoadNewConfig implements the call of that name.
func (h *handler) BmLoadNewConfig(_ context.Context, json string) error {
	var err error
	if h.opts.SwapDisabled {
		err = swapError(standard.SwapCode_CONFIG_SWAP_DISABLED, "the switch runs with --disable-swap")
	} else {
		err = h.state.Load([]byte(json))
	}
	return h.refused("bm_load_new_config", err)
}

// BmSwapConfigs implements the call of that name.
func (h *handler) BmSwapConfigs(context.Context) error {
	err := h.state.Swap()
	if errors.Is(err, target.ErrNothingLoaded) {
		err = swapError(standard.SwapCode_NO_ONGOING_SWAP, "%v", err)
	}
	return h.refused("bm_swap_configs", err)
}

// BmResetState implements the call of that name.
func (h *handler) BmResetState(context.Context) error {
	return h.refused("bm_reset_state", h.state.Reset())
}

// BmGetConfig implements the call of that name.
func (h *handler) BmGetConfig(context.Context) (string, error) {
	return string(h.state.Source()), nil
}

// BmGetConfigMd5 implements the call of that name.
func (h *handler) BmGetConfigMd5(context.Context) ([]byte, error) {
	sum := md5.Sum(h.state.Source()) // what clients compare with a file's
	return sum[:], nil
}

// BmSerializeState implements the call of that name.
func (h *handler) BmSerializeState(context.Context) (string, error) {
	return "", h.refused("bm_serialize_state",
		unsupported("this switch has no form in which it writes its state down"))
}

// BmGetIDFromName implements the call of that name.
func (h *handler) BmGetIDFromName(_ context.Context, cxt int32, kind standard.ResourceType,
	name string) (id int32, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		prog := p.Program()
		found := -1
		switch kind {
		case standard.ResourceType_MATCH_TABLE:
			if t := prog.Table(name); t != nil {
				found = t.ID
			}
		case standard.ResourceType_ACTION_PROFILE:
			if t := prog.Profile(name); t != nil {
				found = t.ID
			}
		case standard.ResourceType_COUNTER:
			if t := prog.Counter(name); t != nil {
				found = t.ID
			}
		case standard.ResourceType_METER:
			if t := prog.Meter(name); t != nil {
				found = t.ID
			}
		case standard.ResourceType_REGISTER:
			if t := prog.Register(name); t != nil {
				found = t.ID
			}
		case standard.ResourceType_LEARNING_LIST:
			if t := prog.LearnListNamed(name); t != nil {
				found = t.ID
			}
		default:
			return &explained{&standard.LookupError{
				Code: standard.LookupCode_INVALID_RESOURCE_TYPE},
				fmt.Sprintf("there is no kind %d of resource", kind)}
		}
		if found < 0 {
			return &explained{&standard.LookupError{
				Code: standard.LookupCode_INVALID_RESOURCE_NAME},
				fmt.Sprintf("there is no %v %q", kind, name)}
		}
		id = int32(found)
		return nil
	})
	return id, h.refused("bm_get_id_from_name", err)
}

// setCRC changes the parameters of a custom CRC.
func (h *handler) setCRC(call string, cxt int32, name, algo string, c target.CRC) error {
	failed := func(code standard.CRCCode, format string, args ...any) error {
		return &explained{&standard.CRCError{Code: code}, fmt.Sprintf(format, args...)}
	}
	return h.refused(call, h.write(cxt, func(p target.Pipeline) error {
		for _, k := range p.Program().Calculations {
			if k.Name == name && k.Algo != algo {
				return failed(standard.CRCCode_WRONG_TYPE_CALCULATION,
					"calculation %s is %s, not %s", name, k.Algo, algo)
			}
		}
		for {
			if s, ok := p.(target.CRCSetter); ok {
				err := s.SetCRC(name, c)
				if errors.Is(err, target.ErrNotFound) {
					err = failed(standard.CRCCode_INVALID_CALCULATION_NAME, "%v", err)
				}
				return err
			}
			u, ok := p.(interface{ Unwrap() target.Pipeline })
			if !ok {
				return unsupported(
					"%s cannot change the parameters of %s; the interpreter can (--engine interp)",
					h.dev.Engine(), algo)
			}
			p = u.Unwrap()
		}
	}))
}

// BmSetCrc16CustomParameters implements the call of that name.
func (h *handler) BmSetCrc16CustomParameters(_ context.Context, cxt int32, name string,
	c *standard.CRC16Config) error {
	return h.setCRC("bm_set_crc16_custom_parameters", cxt, name, "crc16_custom", target.CRC{
		Polynomial: uint32(uint16(c.Polynomial)), Init: uint32(uint16(c.InitialRemainder)),
		XorOut: uint32(uint16(c.FinalXorValue)), ReflectIn: c.DataReflected,
		ReflectOut: c.RemainderReflected})
}

// BmSetCrc32CustomParameters implements the call of that name.
func (h *handler) BmSetCrc32CustomParameters(_ context.Context, cxt int32, name string,
	c *standard.CRC32Config) error {
	return h.setCRC("bm_set_crc32_custom_parameters", cxt, name, "crc32_custom", target.CRC{
		Polynomial: uint32(c.Polynomial), Init: uint32(c.InitialRemainder),
		XorOut: uint32(c.FinalXorValue), ReflectIn: c.DataReflected,
		ReflectOut: c.RemainderReflected})
}

// BmSetToeplitzHashKey implements the call of that name: no program has such a hash here.
func (h *handler) BmSetToeplitzHashKey(_ context.Context, _ int32, name string, _ []byte) error {
	return h.refused("bm_set_toeplitz_hash_key", &explained{&standard.ToeplitzError{
		Code: standard.ToeplitzCode_WRONG_TYPE_CALCULATION},
		fmt.Sprintf("calculation %q is no Toeplitz hash", name)})
}
