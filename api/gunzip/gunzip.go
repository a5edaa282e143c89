// Package gunzip reads data that may be compressed with gzip, for example compiled P4 programs.
package gunzip

import (
	"bytes"
	"compress/gzip"
	"io"
)

// Bytes decompresses data if it is in gzip's format (RFC 1952). Otherwise it returns data
// unchanged.
func Bytes(data []byte) ([]byte, error) {
	// gzip's magic number; neither JSON nor text begins with these two bytes
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
