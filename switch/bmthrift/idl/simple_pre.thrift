/*
 * The service "simple_pre" of BMv2's targets: multicast. A group has nodes, a node is a replication
 * id and ports. A map of ports is a string of 0 and 1, the last one for port 0.
 */
namespace go simplepre

enum MulticastCode {
  TABLE_FULL = 1,
  INVALID_MGID = 2,
  INVALID_MGRP_HANDLE = 3,
  INVALID_L1_HANDLE = 4,
  ERROR = 5
}
exception MulticastError { 1: MulticastCode code }

service SimplePre {
  i32 bm_mc_mgrp_create(1: i32 cxt_id, 2: i32 mgrp) throws (1: MulticastError e)
  void bm_mc_mgrp_destroy(1: i32 cxt_id, 2: i32 mgrp_handle) throws (1: MulticastError e)
  i32 bm_mc_node_create(1: i32 cxt_id, 2: i32 rid, 3: string port_map)
    throws (1: MulticastError e)
  void bm_mc_node_associate(1: i32 cxt_id, 2: i32 mgrp_handle, 3: i32 l1_handle)
    throws (1: MulticastError e)
  void bm_mc_node_dissociate(1: i32 cxt_id, 2: i32 mgrp_handle, 3: i32 l1_handle)
    throws (1: MulticastError e)
  void bm_mc_node_destroy(1: i32 cxt_id, 2: i32 l1_handle) throws (1: MulticastError e)
  void bm_mc_node_update(1: i32 cxt_id, 2: i32 l1_handle, 3: string port_map)
    throws (1: MulticastError e)
  string bm_mc_get_entries(1: i32 cxt_id) throws (1: MulticastError e)
}
