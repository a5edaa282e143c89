// Package stream defines the layout of the memory that a node's stream broker shares with
// consumers. Consumers map the segment of a partition for reading. They write their positions to
// the cursor page of a subscription. docs/streams.md is the normative text. The package reads and
// writes memory that its caller provides; it does not allocate, map or pass memory.
//
// All numbers are little-endian. Words that change are aligned, and are read and written
// atomically.
package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// These are the sizes and limits of the layout, in bytes unless the name says otherwise.
const (
	HeaderBytes       = 4096 // size of a segment's header in bytes; the objects follow the header
	ObjectHeaderBytes = 64
	RecordHeaderBytes = 24
	CursorBytes       = 4096 // size of a cursor page in bytes

	MinObjectBytes = 1 << 10
	MaxObjectBytes = 1 << 20
	MinObjects     = 4
	MaxObjects     = 1 << 16
	MaxPartitions  = 32 // maximum number of partitions of a stream

	layoutVersion = 1
	segmentMagic  = "NCSEG001"
	cursorMagic   = "NCCUR001"
)

// These are the positions of the fields in a segment's header.
const (
	atMagic      = 0
	atVersion    = 8
	atHeader     = 12
	atObject     = 16
	atObjects    = 20
	atGeneration = 24
	atPartition  = 32
	atBegun      = 64
	atEnded      = 72
)

// These are the positions of the fields in an object's header.
const (
	atNumber = 0
	atFirst  = 8
	atState  = 16
)

// taken replaces an object's number while another object is written to the same memory.
const taken = ^uint64(0)

// Segment is the memory of a partition. It is a ring of objects. The writer fills each object with
// records from its beginning.
type Segment struct {
	b           []byte
	objects     uint64
	objectBytes int
}

// SegmentBytes returns the size of a segment.
func SegmentBytes(objects, objectBytes int) int { return HeaderBytes + objects*objectBytes }

// CheckSize returns an error if a partition may not have that many objects of that size.
func CheckSize(objects, objectBytes int) error {
	switch {
	case objectBytes < MinObjectBytes || objectBytes > MaxObjectBytes || objectBytes&(objectBytes-1) != 0:
		return fmt.Errorf("an object has %d bytes; it has a power of two from %d to %d", objectBytes, MinObjectBytes, MaxObjectBytes)
	case objects < MinObjects || objects > MaxObjects:
		return fmt.Errorf("a partition has %d objects; it has %d to %d", objects, MinObjects, MaxObjects)
	}
	return nil
}

// Format makes a segment in memory that is filled with zeros. The generation distinguishes the
// segment from all other segments of the partition.
func Format(b []byte, objects, objectBytes int, generation uint64, partition int) (*Segment, error) {
	if err := CheckSize(objects, objectBytes); err != nil {
		return nil, err
	}
	if len(b) != SegmentBytes(objects, objectBytes) {
		return nil, fmt.Errorf("%d objects of %d bytes take %d bytes, not %d", objects, objectBytes,
			SegmentBytes(objects, objectBytes), len(b))
	}
	le := binary.LittleEndian
	le.PutUint32(b[atVersion:], layoutVersion)
	le.PutUint32(b[atHeader:], HeaderBytes)
	le.PutUint32(b[atObject:], uint32(objectBytes))
	le.PutUint32(b[atObjects:], uint32(objects))
	le.PutUint64(b[atGeneration:], generation)
	le.PutUint32(b[atPartition:], uint32(partition))
	s := &Segment{b, uint64(objects), objectBytes}
	for i := range s.objects {
		word(s.slot(i), atNumber).Store(taken)
	}
	// The magic is written last. So memory of a writer that died earlier does not look like a
	// segment.
	copy(b[atMagic:], segmentMagic)
	return s, nil
}

// Open checks memory that may be a segment. It does not trust the content of the memory.
func Open(b []byte) (*Segment, error) {
	if len(b) < HeaderBytes || string(b[:len(segmentMagic)]) != segmentMagic {
		return nil, errors.New("this is no segment of a stream")
	}
	le := binary.LittleEndian
	if v, h := le.Uint32(b[atVersion:]), le.Uint32(b[atHeader:]); v != layoutVersion || h != HeaderBytes {
		return nil, fmt.Errorf("a segment of layout %d with a header of %d bytes; this program knows layout %d", v, h, layoutVersion)
	}
	objects, size := int(le.Uint32(b[atObjects:])), int(le.Uint32(b[atObject:]))
	if err := CheckSize(objects, size); err != nil {
		return nil, err
	}
	if len(b) != SegmentBytes(objects, size) {
		return nil, fmt.Errorf("a segment of %d objects of %d bytes has %d bytes, not %d", objects, size,
			SegmentBytes(objects, size), len(b))
	}
	return &Segment{b, uint64(objects), size}, nil
}

// word returns the 64 bits at an aligned position.
func word(b []byte, at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&b[at : at+8][0]))
}

func half(b []byte, at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&b[at : at+4][0]))
}

// Objects returns the number of objects in the ring, and ObjectBytes returns the size of each
// object, including its header.
func (s *Segment) Objects() int     { return int(s.objects) }
func (s *Segment) ObjectBytes() int { return s.objectBytes }

// Generation returns the generation that was passed to Format.
func (s *Segment) Generation() uint64 { return binary.LittleEndian.Uint64(s.b[atGeneration:]) }

// Partition returns the number of the segment's partition.
func (s *Segment) Partition() int { return int(binary.LittleEndian.Uint32(s.b[atPartition:])) }

// Begun returns the number of objects that the writer has ever begun. Objects are numbered from 0,
// so the newest object is Begun-1. All objects before it are complete.
func (s *Segment) Begun() uint64 { return word(s.b, atBegun).Load() }

// Ended reports whether the writer has stopped writing to this segment, because another segment
// replaces it.
func (s *Segment) Ended() bool { return word(s.b, atEnded).Load() != 0 }

// End marks the segment as ended. Only the writer calls it.
func (s *Segment) End() { word(s.b, atEnded).Store(1) }

func (s *Segment) slot(number uint64) []byte {
	at := HeaderBytes + int(number%s.objects)*s.objectBytes
	return s.b[at : at+s.objectBytes : at+s.objectBytes]
}

// Begin begins the next object, which replaces the object at the same place in the ring. The
// argument `first` is the offset of the object's first record. Only the writer calls Begin.
func (s *Segment) Begin(number, first uint64) {
	o := s.slot(number)
	word(o, atNumber).Store(taken)
	word(o, atState).Store(0)
	word(o, atFirst).Store(first)
	word(o, atNumber).Store(number)
	word(s.b, atBegun).Store(number + 1)
}

// Restart sets the number of the first object, in a segment without objects. Only the writer calls
// it.
func (s *Segment) Restart(number uint64) { word(s.b, atBegun).Store(number) }

// Record is one record of a stream.
type Record struct {
	Data []byte
	// Mark is a number that the producer or source sets to find its position again.
	Mark uint64
	// Time is the time when the record was appended, in nanoseconds since 1970.
	Time int64
}

// RecordBytes returns the number of bytes that a record with n bytes of data occupies in an object.
func RecordBytes(n int) int { return RecordHeaderBytes + (n+7)&^7 }

// MaxRecord returns the maximum length of a record's data, for objects of objectBytes bytes.
func MaxRecord(objectBytes int) int { return objectBytes - ObjectHeaderBytes - RecordHeaderBytes }

// Put writes a record at a position of the newest object. Publish makes the record visible. Only
// the writer calls Put.
func (s *Segment) Put(number uint64, at int, r Record) {
	o := s.slot(number)[ObjectHeaderBytes+at:]
	le := binary.LittleEndian
	le.PutUint32(o, uint32(len(r.Data)))
	le.PutUint32(o[4:], 0)
	le.PutUint64(o[8:], r.Mark)
	le.PutUint64(o[16:], uint64(r.Time))
	copy(o[RecordHeaderBytes:RecordHeaderBytes+len(r.Data)], r.Data)
}

// Publish sets the number of visible records in the newest object, and their length in bytes. Only
// the writer calls it.
func (s *Segment) Publish(number uint64, used, count int) {
	word(s.slot(number), atState).Store(uint64(used)<<32 | uint64(count))
}

// Fill fills an object with the records of another object. Only the writer calls it.
func (s *Segment) Fill(number uint64, records []byte, count int) {
	copy(s.slot(number)[ObjectHeaderBytes:], records)
	s.Publish(number, len(records), count)
}

// Object is the state of an object when a reader read it. Its bytes are in the segment, so the
// writer may overwrite them during the read. Valid reports afterwards whether this has happened.
type Object struct {
	Number uint64
	First  uint64 // offset of the object's first record
	Count  int    // number of records in the object
	Bytes  []byte // the records of the object
	slot   []byte
}

// Has reports whether an object is still in the ring.
func (s *Segment) Has(number uint64) bool { return word(s.slot(number), atNumber).Load() == number }

// Object returns an object. The result ok is false if the place in the ring has another object or
// none. It is also false if the object claims more bytes of records than fit, which never happens
// in a valid segment.
func (s *Segment) Object(number uint64) (o Object, ok bool) {
	b := s.slot(number)
	if !s.Has(number) {
		return o, false
	}
	state := word(b, atState).Load()
	used, count := int(state>>32), int(uint32(state))
	if used > s.objectBytes-ObjectHeaderBytes {
		return o, false
	}
	end := ObjectHeaderBytes + used
	o = Object{number, word(b, atFirst).Load(), count, b[ObjectHeaderBytes:end:end], b}
	return o, o.Valid()
}

// Valid reports whether everything that was read from the object so far was data of this object.
func (o *Object) Valid() bool { return word(o.slot, atNumber).Load() == o.Number }

// Next reads the record at a position in the object's bytes. The position is 0, or the result of
// the last Next. The result ok is false at the end of the object. The record's data are in the
// segment, not a copy.
func (o *Object) Next(at int) (r Record, next int, ok bool) {
	b := o.Bytes
	if at < 0 || at > len(b)-RecordHeaderBytes {
		return r, at, false
	}
	le := binary.LittleEndian
	n := int(le.Uint32(b[at:]))
	if n > len(b)-at-RecordHeaderBytes {
		return r, at, false // the writer overwrote the object during the read
	}
	from := at + RecordHeaderBytes
	r = Record{b[from : from+n : from+n], le.Uint64(b[at+8:]), int64(le.Uint64(b[at+16:]))}
	return r, at + RecordBytes(n), true
}

// Oldest returns the number of the oldest object that may still be in the ring.
func (s *Segment) Oldest() uint64 {
	begun := s.Begun()
	return begun - min(begun, s.objects)
}
