/*
 * The service "simple_pre_lag" of BMv2's targets: multicast as in "simple_pre", where a node may
 * have link aggregation groups besides ports.
 */
namespace go simpleprelag

enum MulticastCode {
  TABLE_FULL = 1,
  INVALID_MGID = 2,
  INVALID_MGRP_HANDLE = 3,
  INVALID_L1_HANDLE = 4,
  ERROR = 5
}
exception MulticastError { 1: MulticastCode code }

service SimplePreLAG {
  i32 bm_mc_mgrp_create(1: i32 cxt_id, 2: i32 mgrp) throws (1: MulticastError e)
  void bm_mc_mgrp_destroy(1: i32 cxt_id, 2: i32 mgrp_handle) throws (1: MulticastError e)
  i32 bm_mc_node_create(1: i32 cxt_id, 2: i32 rid, 3: string port_map, 4: string lag_map)
    throws (1: MulticastError e)
  void bm_mc_node_associate(1: i32 cxt_id, 2: i32 mgrp_handle, 3: i32 l1_handle)
    throws (1: MulticastError e)
  void bm_mc_node_dissociate(1: i32 cxt_id, 2: i32 mgrp_handle, 3: i32 l1_handle)
    throws (1: MulticastError e)
  void bm_mc_node_destroy(1: i32 cxt_id, 2: i32 l1_handle) throws (1: MulticastError e)
  void bm_mc_node_update(1: i32 cxt_id, 2: i32 l1_handle, 3: string port_map, 4: string lag_map)
    throws (1: MulticastError e)
  void bm_mc_set_lag_membership(1: i32 cxt_id, 2: i16 lag_index, 3: string port_map)
    throws (1: MulticastError e)
  string bm_mc_get_entries(1: i32 cxt_id) throws (1: MulticastError e)
}
