// Package syncbuffer has what a program under test prints, for tests that read it while it runs.
package syncbuffer

import (
	"bytes"
	"sync"
)

// Buffer is a buffer that several goroutines may write and read. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (s *Buffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String is all that was written.
func (s *Buffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
