package slotcodec

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// level is the compression level. It is a compromise. Each write compresses a value once, which
// takes about 30 us for a pod. The best level would need tables of 40 MB.
const level = zstd.SpeedBetterCompression

// magic is the number at the beginning of a zstd frame (RFC 8878, 3.1.1). It is 0xFD2FB528, with
// the lowest byte first.
const magic = "\x28\xb5\x2f\xfd"

// workers is the number of values that can be compressed, or decompressed, at the same time.
const workers = 2

// Codec encodes and decodes cells with the dictionaries that it was made with. It does not change
// and is safe for concurrent use.
type Codec struct {
	newest  uint32 // version of the newest dictionary; 0 if there is none
	known   map[uint32]bool
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// NewCodec makes a codec with the given dictionaries. It compresses with the dictionary that has
// the highest version, or without a dictionary if there is none.
func NewCodec(dictionaries ...[]byte) (*Codec, error) {
	c := &Codec{known: map[uint32]bool{}}
	encode := []zstd.EOption{zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(workers),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithWindowSize(MaxValue)}
	var best []byte
	for _, d := range dictionaries {
		version, err := Version(d)
		if err != nil {
			return nil, err
		}
		if c.known[version] {
			return nil, fmt.Errorf("dictionary %d is given twice", version)
		}
		c.known[version] = true
		if version > c.newest {
			c.newest, best = version, d
		}
	}
	if best != nil {
		encode = append(encode, zstd.WithEncoderDict(best))
	}
	var err error
	if c.encoder, err = zstd.NewWriter(nil, encode...); err != nil {
		return nil, fmt.Errorf("dictionary %d: %w", c.newest, err)
	}
	if c.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(workers),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(MaxValue),
		zstd.WithDecoderDicts(dictionaries...)); err != nil {
		return nil, fmt.Errorf("dictionaries: %w", err)
	}
	return c, nil
}

// Newest returns the version of the dictionary with which the codec compresses values. It returns 0
// if there is no dictionary.
func (c *Codec) Newest() uint32 { return c.newest }

// Knows reports whether the codec has the dictionary of a version.
func (c *Codec) Knows(version uint32) bool { return c.known[version] }

// Version returns the version of a dictionary.
func Version(dictionary []byte) (uint32, error) {
	d, err := zstd.InspectDictionary(dictionary)
	if err != nil {
		return 0, fmt.Errorf("%d bytes are no zstd dictionary: %w", len(dictionary), err)
	}
	if d.ID() == 0 {
		return 0, errors.New("the dictionary has no version (Dictionary_ID)")
	}
	return d.ID(), nil
}

// compress returns the compressed value for a cell, or nil if it is not smaller than the value or
// exceeds size bytes.
func (c *Codec) compress(value []byte, size int) []byte {
	if len(value) > MaxValue || len(value) < 8 {
		return nil
	}
	b := c.encoder.EncodeAll(value, nil)[len(magic):]
	if len(b) >= len(value) || len(b) > size {
		return nil
	}
	return b
}

func (c *Codec) decompress(b []byte) ([]byte, error) {
	frame := append([]byte(magic), b...)
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		return nil, malformed("%v", err)
	}
	switch {
	case h.DictionaryID != 0 && !c.known[h.DictionaryID]:
		return nil, &DictionaryError{h.DictionaryID}
	case !h.HasFCS || h.FrameContentSize > MaxValue:
		return nil, malformed("a value of %d bytes", h.FrameContentSize)
	case h.HasCheckSum || h.Skippable:
		return nil, malformed("a zstd frame of another form")
	}
	value, err := c.decoder.DecodeAll(frame, make([]byte, 0, h.FrameContentSize))
	if err != nil {
		return nil, malformed("%v", err)
	}
	if uint64(len(value)) != h.FrameContentSize {
		// The bytes have a second frame after the first one.
		return nil, malformed("%d bytes where %d were announced", len(value), h.FrameContentSize)
	}
	return value, nil
}
