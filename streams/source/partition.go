package source

import "hash/fnv"

// Partition is where records of a key, or of whatever has an order, are.
func Partition(key string, of int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(of))
}
