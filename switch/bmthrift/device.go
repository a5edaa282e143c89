package bmthrift

import (
	"crypto/md5"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/target"
)

// sessionOf converts a mirroring session to a target.CloneSession.
func sessionOf(m mirror, groups map[uint32][]target.Replica) *target.CloneSession {
	s := &target.CloneSession{Replicas: []target.Replica{}}
	if m.port != nil {
		s.Replicas = append(s.Replicas, target.Replica{Port: uint32(*m.port)})
	}
	s.Replicas = append(s.Replicas, groups[m.group]...)
	return s
}

// setMirror creates or changes a mirroring session.
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

// MirroringSessionDelete implements the Thrift call of the same name.
func (h *handler) MirroringSessionDelete(id int32) error {
	return h.write(0, func(p target.Pipeline) error {
		if _, ok := p.CloneSessions()[uint32(id)]; !ok {
			return notMirrored(id)
		}
		delete(h.mc.mirrors, uint32(id))
		return p.SetCloneSession(uint32(id), nil)
	})
}

func notMirrored(id int32) error {
	return refusal(idl.MirroringCodeSessionNotFound, "there is no mirroring session %d", id)
}

// MirroringSessionGet implements the Thrift call of the same name.
func (h *handler) MirroringSessionGet(id int32) (out idl.MirroringConfig, err error) {
	err = h.read(0, func(p target.Pipeline) error {
		s, ok := p.CloneSessions()[uint32(id)]
		if !ok {
			return notMirrored(id)
		}
		if m, ok := h.mc.mirrors[uint32(id)]; ok {
			group := int32(m.group)
			out.Mgid, out.Port = &group, m.port
			return nil
		}
		// P4Runtime may have created a session with more copies than this call can express.
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

// MirroringSessionAdd implements the Thrift call of the same name.
func (h *handler) MirroringSessionAdd(id int32, c idl.MirroringConfig) error {
	err := h.setMirror(id, c.Port, c.Mgid)
	if errors.Is(err, target.ErrOutOfRange) || errors.Is(err, errGroupID) {
		err = refusal(idl.MirroringCodeSessionNotFound, "%v", err)
	}
	return err
}

// byNumber converts an error to a status number: 1 for any error, 0 for success. BMv2's older calls
// report errors in this way.
func (h *handler) byNumber(call string, err error) int32 {
	if err == nil {
		return 0
	}
	h.logRefusal(call, err)
	return 1
}

// MirroringMappingAdd implements the Thrift call of the same name.
func (h *handler) MirroringMappingAdd(id, port int32) (int32, error) {
	return h.byNumber("mirroring_mapping_add", h.setMirror(id, &port, nil)), nil
}

// MirroringMappingDelete implements the Thrift call of the same name.
func (h *handler) MirroringMappingDelete(id int32) (int32, error) {
	return h.byNumber("mirroring_mapping_delete", h.MirroringSessionDelete(id)), nil
}

// MirroringMappingGetEgressPort implements the Thrift call of the same name. It returns -1 if the
// session has no port.
func (h *handler) MirroringMappingGetEgressPort(id int32) (int32, error) {
	c, err := h.MirroringSessionGet(id)
	if err != nil || c.Port == nil {
		return -1, nil
	}
	return *c.Port, nil
}

// setQueues changes the rate or depth of the egress queues of one port and one priority. A nil port
// or priority stands for all. setQueues reports errors by an exception, because clients do not
// check the status number that these calls return.
func (h *handler) setQueues(port, priority *int32,
	do func(q target.QueueSetter, port *uint32, priority *int) error) (int32, error) {
	q, ok := h.dev.(target.QueueSetter)
	if !ok {
		return 1, unsupported("%s has no queues between ingress and egress, and so "+
			"no depths and rates of them; start with --engine interp", h.dev.Engine())
	}
	var ofPort *uint32
	if port != nil {
		if *port < 0 {
			return 1, unsupported("port %d: there is none below 0", *port)
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
		return 1, unsupported("%v", err)
	}
	return 0, nil
}

func (h *handler) setDepth(port, priority *int32, depth int32) (int32, error) {
	return h.setQueues(port, priority,
		func(q target.QueueSetter, port *uint32, priority *int) error {
			return q.SetQueueDepth(port, priority, int(depth))
		})
}

func (h *handler) setRate(port, priority *int32, rate int64) (int32, error) {
	return h.setQueues(port, priority,
		func(q target.QueueSetter, port *uint32, priority *int) error {
			if rate < 0 {
				return fmt.Errorf("a rate of %d packets a second: %w", rate, target.ErrInvalid)
			}
			return q.SetQueueRate(port, priority, uint64(rate))
		})
}

// SetEgressPriorityQueueDepth implements the Thrift call of the same name.
func (h *handler) SetEgressPriorityQueueDepth(port, priority, depth int32) (int32, error) {
	return h.setDepth(&port, &priority, depth)
}

// SetEgressQueueDepth implements the Thrift call of the same name.
func (h *handler) SetEgressQueueDepth(port, depth int32) (int32, error) {
	return h.setDepth(&port, nil, depth)
}

// SetAllEgressQueueDepths implements the Thrift call of the same name.
func (h *handler) SetAllEgressQueueDepths(depth int32) (int32, error) {
	return h.setDepth(nil, nil, depth)
}

// SetEgressPriorityQueueRate implements the Thrift call of the same name.
func (h *handler) SetEgressPriorityQueueRate(port, priority int32, rate int64) (int32, error) {
	return h.setRate(&port, &priority, rate)
}

// SetEgressQueueRate implements the Thrift call of the same name.
func (h *handler) SetEgressQueueRate(port int32, rate int64) (int32, error) {
	return h.setRate(&port, nil, rate)
}

// SetAllEgressQueueRates implements the Thrift call of the same name.
func (h *handler) SetAllEgressQueueRates(rate int64) (int32, error) {
	return h.setRate(nil, nil, rate)
}

// GetTimeElapsedUs implements the Thrift call of the same name.
func (h *handler) GetTimeElapsedUs() (int64, error) {
	return h.dev.Now().Microseconds(), nil
}

// GetTimeSinceEpochUs implements the Thrift call of the same name.
func (h *handler) GetTimeSinceEpochUs() (int64, error) {
	return h.began.Add(h.dev.Now()).UnixMicro(), nil
}

// BmDevMgrAddPort implements the Thrift call of the same name.
func (h *handler) BmDevMgrAddPort(iface string, port int32, pcap string) error {
	if pcap != "" {
		return refusal(idl.PortCodeError,
			"a port that is added cannot be recorded; start the switch with --pcap")
	}
	if port < 0 || port >= maxPorts {
		return refusal(idl.PortCodeError, "a port is 0 to %d, not %d", maxPorts-1, port)
	}
	return portFailure(h.dev.AddPort(target.Port{Number: uint32(port), Iface: iface}))
}

func portFailure(err error) error {
	if err == nil {
		return nil
	}
	return refusal(idl.PortCodeError, "%v", err)
}

// BmDevMgrRemovePort implements the Thrift call of the same name.
func (h *handler) BmDevMgrRemovePort(port int32) error {
	return portFailure(h.dev.RemovePort(uint32(port)))
}

// BmDevMgrShowPorts implements the Thrift call of the same name.
func (h *handler) BmDevMgrShowPorts() (out []idl.PortInfo, err error) {
	for p := range h.dev.Ports() {
		link, err := net.InterfaceByName(p.Iface)
		out = append(out, idl.PortInfo{PortNum: int32(p.Number), IfaceName: p.Iface,
			IsUp: err == nil && link.Flags&net.FlagUp != 0 && link.Flags&net.FlagRunning != 0})
	}
	slices.SortFunc(out, func(a, b idl.PortInfo) int { return int(a.PortNum - b.PortNum) })
	return out, nil
}

// BmMgmtGetInfo implements the Thrift call of the same name.
func (h *handler) BmMgmtGetInfo() (idl.SwitchInfo, error) {
	info := idl.SwitchInfo{DeviceID: int64(h.opts.DeviceID), ThriftPort: int32(h.port)}
	if h.opts.Notifications != "" {
		info.NotificationsSocket = &h.opts.Notifications
	}
	return info, nil
}

// BmLoadNewConfig implements the Thrift call of the same name.
func (h *handler) BmLoadNewConfig(json string) error {
	if h.opts.SwapDisabled {
		return refusal(idl.SwapCodeConfigSwapDisabled, "the switch runs with --disable-swap")
	}
	return h.state.Load([]byte(json))
}

// BmSwapConfigs implements the Thrift call of the same name.
func (h *handler) BmSwapConfigs() error {
	err := h.state.Swap()
	if errors.Is(err, target.ErrNothingLoaded) {
		err = refusal(idl.SwapCodeNoOngoingSwap, "%v", err)
	}
	return err
}

// BmResetState implements the Thrift call of the same name.
func (h *handler) BmResetState() error {
	return h.state.Reset()
}

// BmGetConfig implements the Thrift call of the same name.
func (h *handler) BmGetConfig() (string, error) {
	return string(h.state.Source()), nil
}

// BmGetConfigMd5 implements the Thrift call of the same name.
func (h *handler) BmGetConfigMd5() ([]byte, error) {
	sum := md5.Sum(h.state.Source()) // Clients compare this checksum with the MD5 of a file.
	return sum[:], nil
}

// BmSerializeState implements the Thrift call of the same name.
func (h *handler) BmSerializeState() (string, error) {
	return "", unsupported("this switch has no form in which it writes its state down")
}

// BmGetIDFromName implements the Thrift call of the same name.
func (h *handler) BmGetIDFromName(cxt int32, kind idl.ResourceType, name string) (id int32,
	err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		prog := p.Program()
		found := -1
		switch kind {
		case idl.ResourceTypeMatchTable:
			if t := prog.Table(name); t != nil {
				found = t.ID
			}
		case idl.ResourceTypeActionProfile:
			if t := prog.ActionProfile(name); t != nil {
				found = t.ID
			}
		case idl.ResourceTypeCounter:
			if t := prog.Counter(name); t != nil {
				found = t.ID
			}
		case idl.ResourceTypeMeter:
			if t := prog.Meter(name); t != nil {
				found = t.ID
			}
		case idl.ResourceTypeRegister:
			if t := prog.Register(name); t != nil {
				found = t.ID
			}
		case idl.ResourceTypeLearningList:
			if t := prog.LearnListNamed(name); t != nil {
				found = t.ID
			}
		default:
			return refusal(idl.LookupCodeInvalidResourceType, "there is no kind %d of resource", kind)
		}
		if found < 0 {
			return refusal(idl.LookupCodeInvalidResourceName, "there is no %v %q", kind, name)
		}
		id = int32(found)
		return nil
	})
	return id, err
}

// setCRC changes the parameters of a custom CRC of the loaded program.
func (h *handler) setCRC(cxt int32, name, algo string, c target.CRC) error {
	return h.write(cxt, func(p target.Pipeline) error {
		for _, k := range p.Program().Calculations {
			if k.Name == name && k.Algo != algo {
				return refusal(idl.CRCCodeWrongTypeCalculation, "calculation %s is %s, not %s", name,
					k.Algo, algo)
			}
		}
		for {
			if s, ok := p.(target.CRCSetter); ok {
				err := s.SetCRC(name, c)
				if errors.Is(err, target.ErrNotFound) {
					err = refusal(idl.CRCCodeInvalidCalculationName, "%v", err)
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
	})
}

// BmSetCrc16CustomParameters implements the Thrift call of the same name.
func (h *handler) BmSetCrc16CustomParameters(cxt int32, name string, c idl.CRC16Config) error {
	return h.setCRC(cxt, name, "crc16_custom", target.CRC{
		Polynomial: uint32(uint16(c.Polynomial)), Init: uint32(uint16(c.InitialRemainder)),
		XorOut: uint32(uint16(c.FinalXorValue)), ReflectIn: c.DataReflected,
		ReflectOut: c.RemainderReflected})
}

// BmSetCrc32CustomParameters implements the Thrift call of the same name.
func (h *handler) BmSetCrc32CustomParameters(cxt int32, name string, c idl.CRC32Config) error {
	return h.setCRC(cxt, name, "crc32_custom", target.CRC{
		Polynomial: uint32(c.Polynomial), Init: uint32(c.InitialRemainder),
		XorOut: uint32(c.FinalXorValue), ReflectIn: c.DataReflected,
		ReflectOut: c.RemainderReflected})
}

// BmSetToeplitzHashKey implements the Thrift call of the same name. It always fails, because no
// program has such a hash here.
func (h *handler) BmSetToeplitzHashKey(_ int32, name string, _ []byte) error {
	return refusal(idl.ToeplitzCodeWrongTypeCalculation, "calculation %q is no Toeplitz hash", name)
}
