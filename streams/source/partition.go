package source

import "hash/fnv"

// Partition returns the partition for the records of a key, or of any other name whose records must
// stay in order.
func Partition(key string, of int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(of))
}
