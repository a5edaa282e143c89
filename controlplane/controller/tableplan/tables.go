package tableplan

import "slices"

// Tables lists the tables that the controller fills. It owns all their entries.
var Tables = slices.Concat([]string{"chain_config", "chain_peer", "key_index"}, BaseTables, WatchTables)

// BaseTables lists the tables whose entries follow from the topology and the leases of sessions,
// except for entries for chains' service addresses.
var BaseTables = []string{"port_trust", "access", "session_lease", "local_address", "ipv4_lpm"}
