/*
 * The service "simple_switch" of BMv2's target of that name: mirroring, queues, the clock.
 */
namespace go simpleswitch

struct MirroringConfig { 1: optional i32 port, 2: optional i32 mgid }

enum MirroringCode { SESSION_NOT_FOUND = 1 }
exception MirroringError { 1: MirroringCode code }

service SimpleSwitch {
  /* These three are what older scripts call. */
  i32 mirroring_mapping_add(1: i32 mirror_id, 2: i32 egress_port)
  i32 mirroring_mapping_delete(1: i32 mirror_id)
  i32 mirroring_mapping_get_egress_port(1: i32 mirror_id)

  void mirroring_session_add(1: i32 mirror_id, 2: MirroringConfig config)
    throws (1: MirroringError e)
  void mirroring_session_delete(1: i32 mirror_id) throws (1: MirroringError e)
  MirroringConfig mirroring_session_get(1: i32 mirror_id) throws (1: MirroringError e)

  i32 set_egress_priority_queue_depth(1: i32 port_num, 2: i32 priority, 3: i32 depth_pkts)
  i32 set_egress_queue_depth(1: i32 port_num, 2: i32 depth_pkts)
  i32 set_all_egress_queue_depths(1: i32 depth_pkts)
  i32 set_egress_priority_queue_rate(1: i32 port_num, 2: i32 priority, 3: i64 rate_pps)
  i32 set_egress_queue_rate(1: i32 port_num, 2: i64 rate_pps)
  i32 set_all_egress_queue_rates(1: i64 rate_pps)

  /* Microseconds: since the switch began, and since 1970. */
  i64 get_time_elapsed_us()
  i64 get_time_since_epoch_us()
}
