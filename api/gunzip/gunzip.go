// Package gunzip reads data that may be compressed with gzip, such as compiled P4 programs in this
// tree.
package gunzip

import (
	"bytes"
	"compress/gzip"
	"io"
)

// Bytes returns the decompressed data if data is in gzip's format (RFC 1952), and otherwise data
// itself.
func Bytes(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) { // gzip's magic number; neither JSON nor text begins so
		return data, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
