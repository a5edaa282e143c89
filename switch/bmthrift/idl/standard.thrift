/*
 * The service "standard" that BMv2's targets offer over Thrift, described from its wire contract:
 * the names of the calls, the numbers of their arguments and of the fields, and the values of the
 * codes are the protocol. The other names, which do not travel, are ours.
 *
 * Where a context is asked for (cxt_id) it is 0: a switch has one program.
 */
namespace go standard

typedef i32 Handle
typedef list<binary> ActionData

enum MatchType { EXACT = 0, LPM = 1, TERNARY = 2, VALID = 3, RANGE = 4 }

struct ExactMatch { 1: binary key }
struct LPMMatch { 1: binary key, 2: i32 prefix_length }
struct TernaryMatch { 1: binary key, 2: binary mask }
struct ValidMatch { 1: bool key }
struct RangeMatch { 1: binary start, 2: binary end_ }

/* One field of a key: the member of the type's name is set. */
struct MatchParam {
  1: MatchType type,
  2: optional ExactMatch exact,
  3: optional LPMMatch lpm,
  4: optional TernaryMatch ternary,
  5: optional ValidMatch valid,
  6: optional RangeMatch range
}
typedef list<MatchParam> MatchKey

/* The smallest priority wins. */
struct EntryOptions { 1: optional i32 priority }

struct CounterValue { 1: i64 bytes, 2: i64 packets }

/* A rate in bytes or packets per microsecond. */
struct MeterRate { 1: double units_per_micros, 2: i32 burst_size }

enum TableCode {
  TABLE_FULL = 1,
  INVALID_HANDLE = 2,
  EXPIRED_HANDLE = 3,
  COUNTERS_DISABLED = 4,
  METERS_DISABLED = 5,
  AGEING_DISABLED = 6,
  INVALID_TABLE_NAME = 7,
  INVALID_ACTION_NAME = 8,
  WRONG_TABLE_TYPE = 9,
  INVALID_MBR_HANDLE = 10,
  MBR_STILL_USED = 11,
  MBR_ALREADY_IN_GRP = 12,
  MBR_NOT_IN_GRP = 13,
  INVALID_GRP_HANDLE = 14,
  GRP_STILL_USED = 15,
  EMPTY_GRP = 16,
  DUPLICATE_ENTRY = 17,
  BAD_MATCH_KEY = 18,
  INVALID_METER_OPERATION = 19,
  DEFAULT_ACTION_IS_CONST = 20,
  DEFAULT_ENTRY_IS_CONST = 21,
  NO_DEFAULT_ENTRY = 22,
  INVALID_ACTION_PROFILE_NAME = 23,
  NO_ACTION_PROFILE_SELECTION = 24,
  IMMUTABLE_TABLE_ENTRIES = 25,
  BAD_ACTION_DATA = 26,
  NO_TABLE_KEY = 27,
  ERROR = 100
}
exception TableError { 1: TableCode code }

enum CounterCode { INVALID_COUNTER_NAME = 1, INVALID_INDEX = 2, ERROR = 3 }
exception CounterError { 1: CounterCode code }

enum SwapCode { CONFIG_SWAP_DISABLED = 1, ONGOING_SWAP = 2, NO_ONGOING_SWAP = 3 }
exception SwapError { 1: SwapCode code }

enum MeterCode {
  INVALID_METER_NAME = 1,
  INVALID_INDEX = 2,
  BAD_RATES_LIST = 3,
  INVALID_INFO_RATE_VALUE = 4,
  INVALID_BURST_SIZE_VALUE = 5,
  ERROR = 6
}
exception MeterError { 1: MeterCode code }

enum RegisterCode { INVALID_REGISTER_NAME = 1, INVALID_INDEX = 2, ERROR = 3 }
exception RegisterError { 1: RegisterCode code }

enum ValueSetCode { INVALID_PARSE_VSET_NAME = 1, ERROR = 2 }
exception ValueSetError { 1: ValueSetCode code }

enum LearnCode { INVALID_LIST_ID = 1, INVALID_LIST_NAME = 2, ERROR = 3 }
exception LearnError { 1: LearnCode code }

enum PortCode { ERROR = 1 }
exception PortError { 1: PortCode code }

struct PortInfo {
  1: i32 port_num,
  2: string iface_name,
  3: bool is_up,
  4: map<string, string> extra
}

struct CRC16Config {
  1: i16 polynomial,
  2: i16 initial_remainder,
  3: i16 final_xor_value,
  4: bool data_reflected,
  5: bool remainder_reflected
}
struct CRC32Config {
  1: i32 polynomial,
  2: i32 initial_remainder,
  3: i32 final_xor_value,
  4: bool data_reflected,
  5: bool remainder_reflected
}
enum CRCCode { INVALID_CALCULATION_NAME = 1, WRONG_TYPE_CALCULATION = 2, INVALID_CONFIG = 3 }
exception CRCError { 1: CRCCode code }

enum ToeplitzCode { INVALID_CALCULATION_NAME = 1, WRONG_TYPE_CALCULATION = 2, INVALID_KEY = 3 }
exception ToeplitzError { 1: ToeplitzCode code }

/* What an entry refers to. NONE: a table without a default entry. */
enum ActionEntryType { NONE = 0, ACTION_DATA = 1, MBR_HANDLE = 2, GRP_HANDLE = 3 }
struct ActionEntry {
  1: ActionEntryType action_type,
  2: optional string action_name,
  3: optional ActionData action_data,
  4: optional Handle mbr_handle,
  5: optional Handle grp_handle
}

struct EntryLife { 1: i32 timeout_ms, 2: i32 time_since_hit_ms }

struct Entry {
  1: MatchKey match_key,
  2: EntryOptions options,
  3: Handle entry_handle,
  4: ActionEntry action_entry,
  5: optional EntryLife life
}

struct Member { 1: Handle mbr_handle, 2: string action_name, 3: ActionData action_data }
struct Group { 1: Handle grp_handle, 2: list<Handle> mbr_handles }

struct SwitchInfo {
  1: i64 device_id,
  2: i32 thrift_port,
  3: optional string notifications_socket,
  4: optional string elogger_socket,
  5: optional string debugger_socket
}

enum ResourceType {
  MATCH_TABLE = 0,
  ACTION_PROFILE = 1,
  COUNTER = 2,
  METER = 3,
  REGISTER = 4,
  LEARNING_LIST = 5
}
enum LookupCode { INVALID_RESOURCE_TYPE = 0, INVALID_RESOURCE_NAME = 1 }
exception LookupError { 1: LookupCode code }

service Standard {
  /* Tables of any kind. */
  i64 bm_mt_get_num_entries(1: i32 cxt_id, 2: string table_name) throws (1: TableError e)
  void bm_mt_clear_entries(1: i32 cxt_id, 2: string table_name, 3: bool reset_default_entry)
    throws (1: TableError e)
  list<Entry> bm_mt_get_entries(1: i32 cxt_id, 2: string table_name) throws (1: TableError e)
  Entry bm_mt_get_entry(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle)
    throws (1: TableError e)
  ActionEntry bm_mt_get_default_entry(1: i32 cxt_id, 2: string table_name)
    throws (1: TableError e)
  /* An empty key means the default entry. */
  Entry bm_mt_get_entry_from_key(1: i32 cxt_id, 2: string table_name, 3: MatchKey match_key,
    4: EntryOptions options) throws (1: TableError e)

  /* Tables with actions of their own. */
  Handle bm_mt_add_entry(1: i32 cxt_id, 2: string table_name, 3: MatchKey match_key,
    4: string action_name, 5: ActionData action_data, 6: EntryOptions options)
    throws (1: TableError e)
  void bm_mt_set_default_action(1: i32 cxt_id, 2: string table_name, 3: string action_name,
    4: ActionData action_data) throws (1: TableError e)
  void bm_mt_reset_default_entry(1: i32 cxt_id, 2: string table_name) throws (1: TableError e)
  void bm_mt_delete_entry(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle)
    throws (1: TableError e)
  void bm_mt_modify_entry(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle,
    4: string action_name, 5: ActionData action_data) throws (1: TableError e)
  void bm_mt_set_entry_ttl(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle,
    4: i32 timeout_ms) throws (1: TableError e)

  /* Action profiles and selectors. */
  Handle bm_mt_act_prof_add_member(1: i32 cxt_id, 2: string act_prof_name, 3: string action_name,
    4: ActionData action_data) throws (1: TableError e)
  void bm_mt_act_prof_delete_member(1: i32 cxt_id, 2: string act_prof_name, 3: Handle mbr_handle)
    throws (1: TableError e)
  void bm_mt_act_prof_modify_member(1: i32 cxt_id, 2: string act_prof_name, 3: Handle mbr_handle,
    4: string action_name, 5: ActionData action_data) throws (1: TableError e)
  Handle bm_mt_act_prof_create_group(1: i32 cxt_id, 2: string act_prof_name)
    throws (1: TableError e)
  void bm_mt_act_prof_delete_group(1: i32 cxt_id, 2: string act_prof_name, 3: Handle grp_handle)
    throws (1: TableError e)
  void bm_mt_act_prof_add_member_to_group(1: i32 cxt_id, 2: string act_prof_name,
    3: Handle mbr_handle, 4: Handle grp_handle) throws (1: TableError e)
  void bm_mt_act_prof_remove_member_from_group(1: i32 cxt_id, 2: string act_prof_name,
    3: Handle mbr_handle, 4: Handle grp_handle) throws (1: TableError e)
  list<Member> bm_mt_act_prof_get_members(1: i32 cxt_id, 2: string act_prof_name)
    throws (1: TableError e)
  Member bm_mt_act_prof_get_member(1: i32 cxt_id, 2: string act_prof_name, 3: Handle mbr_handle)
    throws (1: TableError e)
  list<Group> bm_mt_act_prof_get_groups(1: i32 cxt_id, 2: string act_prof_name)
    throws (1: TableError e)
  Group bm_mt_act_prof_get_group(1: i32 cxt_id, 2: string act_prof_name, 3: Handle grp_handle)
    throws (1: TableError e)

  /* Tables whose entries name a member ... */
  Handle bm_mt_indirect_add_entry(1: i32 cxt_id, 2: string table_name, 3: MatchKey match_key,
    4: Handle mbr_handle, 5: EntryOptions options) throws (1: TableError e)
  void bm_mt_indirect_modify_entry(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle,
    4: Handle mbr_handle) throws (1: TableError e)
  void bm_mt_indirect_delete_entry(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle)
    throws (1: TableError e)
  void bm_mt_indirect_set_entry_ttl(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle,
    4: i32 timeout_ms) throws (1: TableError e)
  void bm_mt_indirect_set_default_member(1: i32 cxt_id, 2: string table_name, 3: Handle mbr_handle)
    throws (1: TableError e)
  void bm_mt_indirect_reset_default_entry(1: i32 cxt_id, 2: string table_name)
    throws (1: TableError e)

  /* ... or a group. */
  Handle bm_mt_indirect_ws_add_entry(1: i32 cxt_id, 2: string table_name, 3: MatchKey match_key,
    4: Handle grp_handle, 5: EntryOptions options) throws (1: TableError e)
  void bm_mt_indirect_ws_modify_entry(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle,
    4: Handle grp_handle) throws (1: TableError e)
  void bm_mt_indirect_ws_set_default_group(1: i32 cxt_id, 2: string table_name,
    3: Handle grp_handle) throws (1: TableError e)

  /* Direct counters and meters. */
  CounterValue bm_mt_read_counter(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle)
    throws (1: TableError e)
  void bm_mt_reset_counters(1: i32 cxt_id, 2: string table_name) throws (1: TableError e)
  void bm_mt_write_counter(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle,
    4: CounterValue value) throws (1: TableError e)
  void bm_mt_set_meter_rates(1: i32 cxt_id, 2: string table_name, 3: Handle entry_handle,
    4: list<MeterRate> rates) throws (1: TableError e)
  list<MeterRate> bm_mt_get_meter_rates(1: i32 cxt_id, 2: string table_name,
    3: Handle entry_handle) throws (1: TableError e)

  /* Counters. */
  CounterValue bm_counter_read(1: i32 cxt_id, 2: string counter_name, 3: i32 index)
    throws (1: CounterError e)
  void bm_counter_reset_all(1: i32 cxt_id, 2: string counter_name) throws (1: CounterError e)
  void bm_counter_write(1: i32 cxt_id, 2: string counter_name, 3: i32 index, 4: CounterValue value)
    throws (1: CounterError e)

  /* Digests. */
  void bm_learning_ack(1: i32 cxt_id, 2: i32 list_id, 3: i64 buffer_id, 4: list<i32> sample_ids)
    throws (1: LearnError e)
  void bm_learning_ack_buffer(1: i32 cxt_id, 2: i32 list_id, 3: i64 buffer_id)
    throws (1: LearnError e)
  void bm_learning_set_timeout(1: i32 cxt_id, 2: i32 list_id, 3: i32 timeout_ms)
    throws (1: LearnError e)
  void bm_learning_set_buffer_size(1: i32 cxt_id, 2: i32 list_id, 3: i32 nb_samples)
    throws (1: LearnError e)

  /* A new program: loaded, filled, swapped in. */
  void bm_load_new_config(1: string config_str) throws (1: SwapError e)
  void bm_swap_configs() throws (1: SwapError e)

  /* Meters. */
  void bm_meter_array_set_rates(1: i32 cxt_id, 2: string meter_array_name,
    3: list<MeterRate> rates) throws (1: MeterError e)
  void bm_meter_set_rates(1: i32 cxt_id, 2: string meter_array_name, 3: i32 index,
    4: list<MeterRate> rates) throws (1: MeterError e)
  list<MeterRate> bm_meter_get_rates(1: i32 cxt_id, 2: string meter_array_name, 3: i32 index)
    throws (1: MeterError e)

  /* Registers: numbers of at most 64 bits. A range ends before end_index. */
  i64 bm_register_read(1: i32 cxt_id, 2: string register_array_name, 3: i32 idx)
    throws (1: RegisterError e)
  list<i64> bm_register_read_all(1: i32 cxt_id, 2: string register_array_name)
    throws (1: RegisterError e)
  void bm_register_write(1: i32 cxt_id, 2: string register_array_name, 3: i32 index, 4: i64 value)
    throws (1: RegisterError e)
  void bm_register_write_range(1: i32 cxt_id, 2: string register_array_name, 3: i32 start_index,
    4: i32 end_index, 5: i64 value) throws (1: RegisterError e)
  void bm_register_reset(1: i32 cxt_id, 2: string register_array_name) throws (1: RegisterError e)

  /* Parser value sets. */
  void bm_parse_vset_add(1: i32 cxt_id, 2: string parse_vset_name, 3: binary value)
    throws (1: ValueSetError e)
  void bm_parse_vset_remove(1: i32 cxt_id, 2: string parse_vset_name, 3: binary value)
    throws (1: ValueSetError e)
  list<binary> bm_parse_vset_get(1: i32 cxt_id, 2: string parse_vset_name)
    throws (1: ValueSetError e)
  void bm_parse_vset_clear(1: i32 cxt_id, 2: string parse_vset_name) throws (1: ValueSetError e)

  /* Ports. An empty pcap_path records nothing. */
  void bm_dev_mgr_add_port(1: string iface_name, 2: i32 port_num, 3: string pcap_path)
    throws (1: PortError e)
  void bm_dev_mgr_remove_port(1: i32 port_num) throws (1: PortError e)
  list<PortInfo> bm_dev_mgr_show_ports() throws (1: PortError e)

  /* The switch. */
  SwitchInfo bm_mgmt_get_info()
  void bm_set_crc16_custom_parameters(1: i32 cxt_id, 2: string calc_name,
    3: CRC16Config crc16_config) throws (1: CRCError e)
  void bm_set_crc32_custom_parameters(1: i32 cxt_id, 2: string calc_name,
    3: CRC32Config crc32_config) throws (1: CRCError e)
  void bm_set_toeplitz_hash_key(1: i32 cxt_id, 2: string calc_name, 3: binary key)
    throws (1: ToeplitzError e)
  void bm_reset_state()
  string bm_get_config()
  binary bm_get_config_md5()
  i32 bm_get_id_from_name(1: i32 cxt_id, 2: ResourceType resource_type, 3: string resource_name)
    throws (1: LookupError e)
  string bm_serialize_state()
}
