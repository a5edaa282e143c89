package streamload

import "math/rand/v2"

// Needle is the text that filters search for. One record in a hundred contains it.
const Needle = "netcraq"

// Texts returns records that consist of words. Some words are frequent and most are rare, as in a
// language. The same seed yields the same records.
func Texts(n, size int, seed uint64) [][]byte {
	random := rand.New(rand.NewPCG(seed, 18))
	zipf := rand.NewZipf(random, 1.1, 2, 9999)
	out := make([][]byte, n)
	for i := range out {
		b := make([]byte, 0, size+16)
		if random.IntN(100) == 0 {
			b = append(b, Needle+" "...)
		}
		for len(b) < size {
			b = appendWord(b, zipf.Uint64())
			b = append(b, ' ')
		}
		out[i] = b[:size]
	}
	return out
}

// appendWord appends the n-th word, which has two to eight letters. Rare words are longer.
func appendWord(b []byte, n uint64) []byte {
	for n += 26; n > 0; n /= 26 {
		b = append(b, 'a'+byte(n%26))
	}
	return b
}
