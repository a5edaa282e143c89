package slotcodec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/klauspost/compress/zstd"
)

// DictionarySize is the default number of bytes of values in a dictionary.
const DictionarySize = 16 << 10

const (
	minSamples = 16 // with fewer values, the samples are not representative
	// maximum number of samples from which the dictionary's entropy tables are made
	maxSamples = 4096
	judges     = 128 // number of samples whose compressed size decides how good a candidate is
	candidates = 48  // number of candidates that are tried in each round
	trainSeed  = 0x4E43
)

// KV is a key and its value, in etcd's JSON format.
type KV struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// ReadExport reads the output of `etcdctl get --prefix PREFIX -w json`.
func ReadExport(r io.Reader) ([]KV, error) {
	var export struct {
		KVs []KV `json:"kvs"`
	}
	if err := json.NewDecoder(r).Decode(&export); err != nil {
		return nil, fmt.Errorf("reading an export of etcd (want what `etcdctl get --prefix / -w json` writes): %w", err)
	}
	if len(export.KVs) == 0 {
		return nil, errors.New("the export of etcd has no keys (want what `etcdctl get --prefix / -w json` writes)")
	}
	return export.KVs, nil
}

// Train makes a dictionary from samples of the values that will be compressed. The dictionary gets
// the given version, which must be at least 1, and has about size bytes of values.
//
// The dictionary consists of whole samples. Train chooses the samples that, in relation to their
// own size, most reduce the compressed size of all other samples. zstd's own trainers collect
// frequent fragments instead. If objects are near copies of each other, as in Kubernetes, whole
// samples are better. For example, similar pods take 135 bytes each with one pod in the dictionary,
// and 450 bytes with the fragments that klauspost's trainer chose. The samples that are most
// similar to all others come last, because references to the end of a dictionary are shortest. The
// same samples always give the same dictionary.
func Train(samples [][]byte, version uint32, size int) ([]byte, error) {
	if version == 0 {
		return nil, errors.New("training a dictionary: its version must be 1 or more")
	}
	r := rand.New(rand.NewPCG(trainSeed, uint64(version)))
	var use [][]byte
	for _, s := range samples {
		if len(s) >= 8 && len(s) <= MaxValue {
			use = append(use, s)
		}
	}
	if len(use) < minSamples {
		return nil, fmt.Errorf("training a dictionary: %d values of 8 to %d bytes are too few: %d at least", len(use), MaxValue, minSamples)
	}
	r.Shuffle(len(use), func(i, j int) { use[i], use[j] = use[j], use[i] })
	use = use[:min(len(use), maxSamples)]
	history, err := choose(r, use, size)
	if err != nil {
		return nil, fmt.Errorf("training a dictionary: %w", err)
	}
	d, err := zstd.BuildDict(zstd.BuildDictOptions{ID: version, Contents: use, History: history,
		Offsets: [3]int{1, 4, 8}, Level: zstd.SpeedBestCompression})
	if err != nil {
		return nil, fmt.Errorf("training a dictionary: %w", err)
	}
	return d, nil
}

// choose selects samples, at most size bytes in total.
func choose(r *rand.Rand, samples [][]byte, size int) ([]byte, error) {
	judge := samples[:min(len(samples), judges)]
	var history []byte
	chosen := make([]bool, len(samples))
	now, err := total(judge, nil)
	if err != nil {
		return nil, err
	}
	for {
		best, gain, after := -1, 0.0, 0
		for tried, i := range r.Perm(len(samples)) {
			if tried >= 4*candidates || best >= 0 && tried >= candidates {
				break
			}
			s := samples[i]
			if chosen[i] || len(s)+len(history) > size {
				continue
			}
			with, err := total(judge, append(append([]byte{}, s...), history...))
			if err != nil {
				return nil, err
			}
			if g := float64(now-with) / float64(len(s)); g > gain {
				best, gain, after = i, g, with
			}
		}
		if best < 0 {
			break
		}
		chosen[best], now = true, after
		history = append(append([]byte{}, samples[best]...), history...)
	}
	if len(history) < 8 {
		return nil, errors.New("the values have nothing in common: no dictionary would help")
	}
	return history, nil
}

// total returns the sum of the sizes of all samples, each compressed with this history.
func total(samples [][]byte, history []byte) (int, error) {
	o := []zstd.EOption{zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1),
		zstd.WithSingleSegment(true), zstd.WithEncoderLevel(zstd.SpeedFastest)}
	if history != nil {
		o = append(o, zstd.WithEncoderDictRaw(1, history))
	}
	e, err := zstd.NewWriter(nil, o...)
	if err != nil {
		return 0, err
	}
	n := 0
	var buf []byte
	for _, s := range samples {
		buf = e.EncodeAll(s, buf[:0])
		n += len(buf)
	}
	return n, nil
}
