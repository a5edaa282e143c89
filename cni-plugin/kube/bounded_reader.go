package kube

import (
	"errors"
	"io"
)

// bounded reads so many bytes and no more.
type bounded struct {
	r    io.Reader
	left int
}

var errTooLong = errors.New("the answer is too long")

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errTooLong
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
