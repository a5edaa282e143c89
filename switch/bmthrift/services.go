package bmthrift

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
)

// services maps the name of each service to its calls. The .thrift files in package idl describe
// the calls.
var services = map[string]map[string]method{
	"standard": merge(
		throwing[idl.TableCode](rows{
			"bm_mt_get_num_entries":                   (*handler).BmMtGetNumEntries,
			"bm_mt_clear_entries":                     (*handler).BmMtClearEntries,
			"bm_mt_get_entries":                       (*handler).BmMtGetEntries,
			"bm_mt_get_entry":                         (*handler).BmMtGetEntry,
			"bm_mt_get_default_entry":                 (*handler).BmMtGetDefaultEntry,
			"bm_mt_get_entry_from_key":                (*handler).BmMtGetEntryFromKey,
			"bm_mt_add_entry":                         (*handler).BmMtAddEntry,
			"bm_mt_set_default_action":                (*handler).BmMtSetDefaultAction,
			"bm_mt_reset_default_entry":               (*handler).BmMtResetDefaultEntry,
			"bm_mt_delete_entry":                      (*handler).BmMtDeleteEntry,
			"bm_mt_modify_entry":                      (*handler).BmMtModifyEntry,
			"bm_mt_set_entry_ttl":                     (*handler).BmMtSetEntryTTL,
			"bm_mt_act_prof_add_member":               (*handler).BmMtActProfAddMember,
			"bm_mt_act_prof_delete_member":            (*handler).BmMtActProfDeleteMember,
			"bm_mt_act_prof_modify_member":            (*handler).BmMtActProfModifyMember,
			"bm_mt_act_prof_create_group":             (*handler).BmMtActProfCreateGroup,
			"bm_mt_act_prof_delete_group":             (*handler).BmMtActProfDeleteGroup,
			"bm_mt_act_prof_add_member_to_group":      (*handler).BmMtActProfAddMemberToGroup,
			"bm_mt_act_prof_remove_member_from_group": (*handler).BmMtActProfRemoveMemberFromGroup,
			"bm_mt_act_prof_get_members":              (*handler).BmMtActProfGetMembers,
			"bm_mt_act_prof_get_member":               (*handler).BmMtActProfGetMember,
			"bm_mt_act_prof_get_groups":               (*handler).BmMtActProfGetGroups,
			"bm_mt_act_prof_get_group":                (*handler).BmMtActProfGetGroup,
			"bm_mt_indirect_add_entry":                (*handler).BmMtIndirectAddEntry,
			"bm_mt_indirect_modify_entry":             (*handler).BmMtIndirectModifyEntry,
			"bm_mt_indirect_delete_entry":             (*handler).BmMtIndirectDeleteEntry,
			"bm_mt_indirect_set_entry_ttl":            (*handler).BmMtSetEntryTTL,
			"bm_mt_indirect_set_default_member":       (*handler).BmMtIndirectSetDefaultMember,
			"bm_mt_indirect_reset_default_entry":      (*handler).BmMtResetDefaultEntry,
			"bm_mt_indirect_ws_add_entry":             (*handler).BmMtIndirectWsAddEntry,
			"bm_mt_indirect_ws_modify_entry":          (*handler).BmMtIndirectWsModifyEntry,
			"bm_mt_indirect_ws_set_default_group":     (*handler).BmMtIndirectWsSetDefaultGroup,
			"bm_mt_read_counter":                      (*handler).BmMtReadCounter,
			"bm_mt_reset_counters":                    (*handler).BmMtResetCounters,
			"bm_mt_write_counter":                     (*handler).BmMtWriteCounter,
			"bm_mt_set_meter_rates":                   (*handler).BmMtSetMeterRates,
			"bm_mt_get_meter_rates":                   (*handler).BmMtGetMeterRates,
		}),
		throwing[idl.CounterCode](rows{
			"bm_counter_read":      (*handler).BmCounterRead,
			"bm_counter_reset_all": (*handler).BmCounterResetAll,
			"bm_counter_write":     (*handler).BmCounterWrite,
		}),
		throwing[idl.LearnCode](rows{
			"bm_learning_ack":             (*handler).BmLearningAck,
			"bm_learning_ack_buffer":      (*handler).BmLearningAckBuffer,
			"bm_learning_set_timeout":     (*handler).BmLearningSetTimeout,
			"bm_learning_set_buffer_size": (*handler).BmLearningSetBufferSize,
		}),
		throwing[idl.SwapCode](rows{
			"bm_load_new_config": (*handler).BmLoadNewConfig,
			"bm_swap_configs":    (*handler).BmSwapConfigs,
		}),
		throwing[idl.MeterCode](rows{
			"bm_meter_array_set_rates": (*handler).BmMeterArraySetRates,
			"bm_meter_set_rates":       (*handler).BmMeterSetRates,
			"bm_meter_get_rates":       (*handler).BmMeterGetRates,
		}),
		throwing[idl.RegisterCode](rows{
			"bm_register_read":        (*handler).BmRegisterRead,
			"bm_register_read_all":    (*handler).BmRegisterReadAll,
			"bm_register_write":       (*handler).BmRegisterWrite,
			"bm_register_write_range": (*handler).BmRegisterWriteRange,
			"bm_register_reset":       (*handler).BmRegisterReset,
		}),
		throwing[idl.ValueSetCode](rows{
			"bm_parse_vset_add":    (*handler).BmParseVsetAdd,
			"bm_parse_vset_remove": (*handler).BmParseVsetRemove,
			"bm_parse_vset_get":    (*handler).BmParseVsetGet,
			"bm_parse_vset_clear":  (*handler).BmParseVsetClear,
		}),
		throwing[idl.PortCode](rows{
			"bm_dev_mgr_add_port":    (*handler).BmDevMgrAddPort,
			"bm_dev_mgr_remove_port": (*handler).BmDevMgrRemovePort,
			"bm_dev_mgr_show_ports":  (*handler).BmDevMgrShowPorts,
		}),
		calls(rows{
			"bm_mgmt_get_info":   (*handler).BmMgmtGetInfo,
			"bm_reset_state":     (*handler).BmResetState,
			"bm_get_config":      (*handler).BmGetConfig,
			"bm_get_config_md5":  (*handler).BmGetConfigMd5,
			"bm_serialize_state": (*handler).BmSerializeState,
		}),
		throwing[idl.CRCCode](rows{
			"bm_set_crc16_custom_parameters": (*handler).BmSetCrc16CustomParameters,
			"bm_set_crc32_custom_parameters": (*handler).BmSetCrc32CustomParameters,
		}),
		throwing[idl.ToeplitzCode](rows{
			"bm_set_toeplitz_hash_key": (*handler).BmSetToeplitzHashKey,
		}),
		throwing[idl.LookupCode](rows{
			"bm_get_id_from_name": (*handler).BmGetIDFromName,
		}),
	),
	"simple_pre": merge(
		throwing[idl.MulticastCode](rows{
			"bm_mc_mgrp_create":     (*handler).createGroup,
			"bm_mc_mgrp_destroy":    (*handler).destroyGroup,
			"bm_mc_node_create":     (*handler).createNode,
			"bm_mc_node_associate":  (*handler).associate,
			"bm_mc_node_dissociate": (*handler).dissociate,
			"bm_mc_node_destroy":    (*handler).destroyNode,
			"bm_mc_node_update":     (*handler).updateNode,
			"bm_mc_get_entries":     (*handler).listMulticast,
		}),
	),
	"simple_pre_lag": merge(
		throwing[idl.MulticastCode](rows{
			"bm_mc_mgrp_create":        (*handler).createGroup,
			"bm_mc_mgrp_destroy":       (*handler).destroyGroup,
			"bm_mc_node_create":        (*handler).createNodeLAG,
			"bm_mc_node_associate":     (*handler).associate,
			"bm_mc_node_dissociate":    (*handler).dissociate,
			"bm_mc_node_destroy":       (*handler).destroyNode,
			"bm_mc_node_update":        (*handler).updateNodeLAG,
			"bm_mc_set_lag_membership": (*handler).setLAG,
			"bm_mc_get_entries":        (*handler).listMulticast,
		}),
	),
	"simple_switch": merge(
		calls(rows{
			"mirroring_mapping_add":             (*handler).MirroringMappingAdd,
			"mirroring_mapping_delete":          (*handler).MirroringMappingDelete,
			"mirroring_mapping_get_egress_port": (*handler).MirroringMappingGetEgressPort,
			"set_egress_priority_queue_depth":   (*handler).SetEgressPriorityQueueDepth,
			"set_egress_queue_depth":            (*handler).SetEgressQueueDepth,
			"set_all_egress_queue_depths":       (*handler).SetAllEgressQueueDepths,
			"set_egress_priority_queue_rate":    (*handler).SetEgressPriorityQueueRate,
			"set_egress_queue_rate":             (*handler).SetEgressQueueRate,
			"set_all_egress_queue_rates":        (*handler).SetAllEgressQueueRates,
			"get_time_elapsed_us":               (*handler).GetTimeElapsedUs,
			"get_time_since_epoch_us":           (*handler).GetTimeSinceEpochUs,
		}),
		throwing[idl.MirroringCode](rows{
			"mirroring_session_add":    (*handler).MirroringSessionAdd,
			"mirroring_session_delete": (*handler).MirroringSessionDelete,
			"mirroring_session_get":    (*handler).MirroringSessionGet,
		}),
	),
}

// rows maps the name of a call to a method of *handler. The method's parameters are the call's
// arguments 1, 2, and so on. The method returns the call's answer, if there is one, and an error.
type rows map[string]any

// method executes a call.
type method struct {
	do reflect.Value
	// args is a struct type for the arguments. result is a struct type for the outcomes: an
	// optional answer (field number 0) and an optional exception (field number 1).
	args, result reflect.Type
}

// The names of the fields of method.result.
const success, exception = "Success", "Exception"

// calls returns the methods of calls for which the IDL defines no exception. The server sends their
// errors as TApplicationException.
func calls(r rows) map[string]method { return methods(r, nil) }

// throwing returns the methods of calls that may end with idl.Exception[C].
func throwing[C ~int32](r rows) map[string]method {
	return methods(r, reflect.TypeFor[*idl.Exception[C]]())
}

func methods(r rows, throws reflect.Type) map[string]method {
	out := map[string]method{}
	for name, do := range r {
		t := reflect.TypeOf(do)
		var args, result []reflect.StructField
		for i := 1; i < t.NumIn(); i++ { // parameter 0 is the handler
			args = append(args, reflect.StructField{Name: fmt.Sprint("Arg", i), Type: t.In(i),
				Tag: reflect.StructTag(fmt.Sprintf(`thrift:"%d"`, i))})
		}
		if t.NumOut() == 2 {
			result = append(result, reflect.StructField{Name: success,
				Type: reflect.PointerTo(t.Out(0)), Tag: `thrift:"0,optional"`})
		}
		if throws != nil {
			result = append(result, reflect.StructField{Name: exception, Type: throws,
				Tag: `thrift:"1,optional"`})
		}
		out[name] = method{reflect.ValueOf(do), reflect.StructOf(args), reflect.StructOf(result)}
	}
	return out
}

func merge(groups ...map[string]method) map[string]method {
	out := map[string]method{}
	for _, g := range groups {
		maps.Copy(out, g)
	}
	return out
}

// execute executes a call and logs the error if the call fails. It returns an error only if result
// has no field for that error.
func (m method) execute(h *handler, name string, args reflect.Value) (result reflect.Value,
	err error) {
	in := []reflect.Value{reflect.ValueOf(h)}
	for i := range args.NumField() {
		in = append(in, args.Field(i))
	}
	out := m.do.Call(in)
	err, _ = out[len(out)-1].Interface().(error)
	result = reflect.New(m.result).Elem()
	if err == nil && len(out) == 2 {
		value := reflect.New(out[0].Type())
		value.Elem().Set(out[0])
		result.FieldByName(success).Set(value)
	}
	if err != nil {
		h.logRefusal(name, err)
	}
	var e *explained
	if f := result.FieldByName(exception); f.IsValid() && errors.As(err, &e) &&
		reflect.TypeOf(e.error) == f.Type() {
		f.Set(reflect.ValueOf(e.error))
		return result, nil
	}
	return result, err
}

// answer reads the next call from p, executes it and sends the answer. It calls whole once it has
// read the message. If answer returns an error, the connection ends.
func (h *handler) answer(ctx context.Context, p thrift.TProtocol, whole func()) error {
	name, kind, id, err := p.ReadMessageBegin(ctx)
	if err != nil {
		return err
	}
	if kind != thrift.CALL && kind != thrift.ONEWAY {
		return fmt.Errorf("a message of type %d is not a call", kind)
	}
	service, name, _ := strings.Cut(name, thrift.MULTIPLEXED_SEPARATOR)
	calls, ok := services[service]
	if !ok {
		return fmt.Errorf("there is no service %q", service)
	}
	reply := func(kind thrift.TMessageType, body thrift.TStruct) error {
		if err := p.WriteMessageBegin(ctx, name, kind, id); err != nil {
			return err
		}
		if err := body.Write(ctx, p); err != nil {
			return err
		}
		if err := p.WriteMessageEnd(ctx); err != nil {
			return err
		}
		return p.Flush(ctx)
	}
	fail := func(code int32, text string) error {
		return reply(thrift.EXCEPTION, thrift.NewTApplicationException(code, text))
	}
	m, ok := calls[name]
	if !ok {
		if err := p.Skip(ctx, thrift.STRUCT); err != nil {
			return err
		}
		whole()
		return fail(thrift.UNKNOWN_METHOD, "Unknown function "+name)
	}
	args := reflect.New(m.args).Elem()
	err = decode(ctx, p, args)
	whole()
	if err != nil {
		_ = fail(thrift.PROTOCOL_ERROR, err.Error())
		return err
	}
	result, err := m.execute(h, name, args)
	if err != nil {
		return fail(thrift.INTERNAL_ERROR, "Internal error processing "+name+": "+err.Error())
	}
	return reply(thrift.REPLY, structure{result})
}
