package paperchain

import (
	"encoding/binary"
	"fmt"
)

// Port is the program's UDP port. The paper does not name one.
const Port = 20034

// These are sizes in bytes.
const (
	ValueBytes = 16
	Size       = 2 + 4 + ValueBytes // size of NetCRAQ's part of a UDP datagram
)

// These are the program's constants.
const (
	Keys     = 65536 // number of keys; every KEY_ID is below this number
	Versions = 8     // number of cells of a key: one for the clean version, the others for dirty versions
)

// Op is the operation of a packet, which has 2 bits.
type Op uint8

// These are the paper's operations.
const (
	Acknowledge Op = iota
	Read
	ReadReply
	Write
)

func (o Op) String() string {
	return [...]string{"ACKNOWLEDGE", "READ", "READ_REPLY", "WRITE"}[o&3]
}

// Packet is a NetCRAQ header of the paper.
type Packet struct {
	Op      Op
	Version uint16 // number of the write, 14 bits, in a WRITE and an ACKNOWLEDGE; 0 means not assigned yet
	Key     uint32
	Value   [ValueBytes]byte
}

// Marshal encodes a packet as the payload of UDP, in network byte order: KV_OP (2 bits), version
// (14 bits), KEY_ID (32 bits), VALUE (128 bits).
func (p *Packet) Marshal() []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, Size), uint16(p.Op&3)<<14|p.Version&0x3fff)
	b = binary.BigEndian.AppendUint32(b, p.Key)
	return append(b, p.Value[:]...)
}

// Unmarshal decodes a UDP payload.
func (p *Packet) Unmarshal(b []byte) error {
	if len(b) != Size {
		return fmt.Errorf("a packet of %d bytes, the paper's have %d", len(b), Size)
	}
	first := binary.BigEndian.Uint16(b)
	*p = Packet{Op: Op(first >> 14), Version: first & 0x3fff, Key: binary.BigEndian.Uint32(b[2:]),
		Value: [ValueBytes]byte(b[6:])}
	return nil
}
