package source

import "hash/fnv"

// Partition returns the partition of the records of a key, or of anything else that has an order.
func Partition(key string, of int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(of))
}
