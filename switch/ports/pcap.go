package ports

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Capture records frames in the classic pcap format. IFACE_in.pcap has the frames that enter
// through an interface, and IFACE_out.pcap the frames that leave. BMv2 uses the same names.
// Options.Tap must be its method Frame, and Options.AfterBatch its method Flush.
type Capture struct {
	dir   string
	files map[captureKey]*captureFile
	err   error // the first error; nothing is written after it
}

type captureKey struct {
	iface string
	dir   Direction
}

type captureFile struct {
	f *os.File
	w *bufio.Writer
}

// NewCapture creates a Capture in an existing directory.
func NewCapture(dir string) (*Capture, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("the directory for captures: %w", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("the directory for captures: %s is not a directory", dir)
	}
	return &Capture{dir: dir, files: map[captureKey]*captureFile{}}, nil
}

// Frame records one frame.
func (c *Capture) Frame(at time.Time, iface string, dir Direction, frame []byte) {
	if c.err != nil {
		return
	}
	k := captureKey{iface, dir}
	f := c.files[k]
	if f == nil {
		if f, c.err = c.open(k); c.err != nil {
			return
		}
		c.files[k] = f
	}
	var h [16]byte
	binary.LittleEndian.PutUint32(h[0:], uint32(at.Unix()))
	binary.LittleEndian.PutUint32(h[4:], uint32(at.Nanosecond()))
	binary.LittleEndian.PutUint32(h[8:], uint32(len(frame)))
	binary.LittleEndian.PutUint32(h[12:], uint32(len(frame)))
	_, _ = f.w.Write(h[:])
	_, _ = f.w.Write(frame) // bufio keeps the error until Flush
}

func (c *Capture) open(k captureKey) (*captureFile, error) {
	suffix := "_in.pcap"
	if k.dir == Tx {
		suffix = "_out.pcap"
	}
	f, err := os.Create(filepath.Join(c.dir, k.iface+suffix))
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	h := binary.LittleEndian.AppendUint32(nil, 0xa1b23c4d) // times in the file are in nanoseconds
	h = binary.LittleEndian.AppendUint16(h, 2)
	h = binary.LittleEndian.AppendUint16(h, 4)
	h = append(h, make([]byte, 8)...)
	h = binary.LittleEndian.AppendUint32(h, 1<<16)
	h = binary.LittleEndian.AppendUint32(h, 1) // the link type is Ethernet
	_, _ = w.Write(h)
	return &captureFile{f, w}, nil
}

// Flush writes the buffered frames to the files.
func (c *Capture) Flush() {
	for _, f := range c.files {
		if err := f.w.Flush(); err != nil && c.err == nil {
			c.err = err
		}
	}
}

// Close flushes and closes the files, and returns the first error of the capture. Frame must not be
// called after it.
func (c *Capture) Close() error {
	c.Flush()
	err := c.err
	for _, f := range c.files {
		err = errors.Join(err, f.f.Close())
	}
	return err
}
