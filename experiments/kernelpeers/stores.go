package kernelpeers

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/api/wire"
)

// value is the value of all requests: 16 bytes, as in the other rows.
const value = "0123456789abcdef"

// bmcKeyBytes replaces BMC's limit of 250 bytes for a key. The verifier follows each loop over a
// key up to this limit, and recent kernels refuse the program with the original limit.
const bmcKeyBytes = 32

// frameTo returns a UDP frame with a destination port.
func frameTo(port uint16, payload []byte) ([]byte, error) {
	f := wire.Frame{Src: netip.MustParseAddrPort("10.0.0.1:4000"),
		Dst: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), port)}
	return f.AppendTo(nil, payload)
}

// BMC opens BMC's cache (the folder bmc of its repository) for a GET that it answers. The key has
// 16 bytes.
func BMC(checkout string) ([]*Peer, error) {
	// If the key has less than 12 bytes, BMC leaves the request to memcached.
	const key = "netcraq/key00001"
	// memcached's header for UDP: request 0, datagram 0 of 1
	frame, err := frameTo(11211, append([]byte{0, 0, 0, 0, 0, 1, 0, 0}, "get "+key+"\r\n"...))
	if err != nil {
		return nil, err
	}
	cached := fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\n", key, len(value), value)
	// The fourth program is left out. It invalidates entries when a SET arrives over TCP, and
	// recent kernels refuse it.
	calls := []string{"bmc_hash_keys_main", "bmc_prepare_packet_main", "bmc_write_reply_main"}
	p, err := (&source{folder: "bmc", file: "bmc_kern.c", others: []string{"bmc_common.h"},
		defines: map[string]int{"BMC_CACHE_ENTRY_COUNT": entries, "BMC_MAX_KEY_LENGTH": bmcKeyBytes}}).open(checkout, request{
		name: "BMC", kind: "GET, hit", frame: frame, shift: 128, main: "bmc_rx_filter_main", calls: calls,
		used: append([]string{"bmc_rx_filter_main"}, calls...), answer: []byte(cached + "END\r\n"),
		fill: func(c *ebpf.Collection) error {
			cache := c.Maps["map_kcache"]
			hash := fnv.New32a()
			hash.Write([]byte(key))
			// the offsets below are those of struct bmc_cache_entry, after its lock
			entry := make([]byte, cache.ValueSize())
			binary.NativeEndian.PutUint32(entry[4:], uint32(len(cached)))
			entry[8] = 1 // marks the entry as valid
			binary.NativeEndian.PutUint32(entry[12:], hash.Sum32())
			copy(entry[16:], cached)
			return cache.Put(hash.Sum32()%entries, entry)
		}})
	if err != nil {
		return nil, err
	}
	return []*Peer{p}, nil
}

// DINT opens DINT's key-value store (the folder store/ebpf of its repository) for a read and a set
// of a key that the kernel holds. Keys have 64 bits, and values have 40 bytes.
func DINT(checkout string) (peers []*Peer, err error) {
	const key, valueBytes, keysPerEntry = 1, 40, 4
	long := make([]byte, valueBytes)
	copy(long, value)
	for _, r := range []struct {
		kind         string
		ask, granted byte // types of the request and of its answer
	}{{"read", 0, 3}, {"set", 1, 5}} {
		// This is struct message: the type, the key, the value, and a version of 32 bits.
		message := binary.NativeEndian.AppendUint64([]byte{r.ask}, key)
		answer := binary.NativeEndian.AppendUint64([]byte{r.granted}, key)
		body := make([]byte, valueBytes)
		if r.kind == "set" {
			body = long
		}
		frame, err := frameTo(20230, slices.Concat(message, body, make([]byte, 4)))
		if err != nil {
			return nil, err
		}
		p, err := (&source{folder: "store/ebpf", file: "store_kern.c", others: []string{"utils.h"},
			defines: map[string]int{"KVS_HASH_SIZE": entries}}).open(checkout, request{
			name: "DINT", kind: r.kind, frame: frame, main: "tps_prim_xdp_main",
			used: []string{"tps_prim_xdp_main"}, answer: append(answer, long...),
			fill: func(c *ebpf.Collection) error {
				cache := c.Maps["map_cache"]
				entry := make([]byte, cache.ValueSize()) // the layout is that of struct cache_entry
				binary.NativeEndian.PutUint64(entry, key)
				copy(entry[8*keysPerEntry:], long)
				entry[(8+valueBytes+4)*keysPerEntry] = 1 // marks the entry as valid
				// Every entry gets the key, so this code does not have to compute the key's place
				// with the program's hash.
				for i := range uint32(entries) {
					if err := cache.Put(i, entry); err != nil {
						return err
					}
				}
				return nil
			}})
		if err != nil {
			return peers, err
		}
		peers = append(peers, p)
	}
	return peers, nil
}
