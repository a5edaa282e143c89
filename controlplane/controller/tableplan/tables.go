package tableplan

import "slices"

// Tables are the tables that the controller fills; all that is in them is its business.
var Tables = slices.Concat([]string{"chain_config", "chain_peer", "key_index"}, BaseTables, WatchTables)

// BaseTables are those of them that follow from the topology, except for chains' service addresses,
// and from the leases of sessions.
var BaseTables = []string{"port_trust", "access", "session_lease", "local_address", "ipv4_lpm"}
