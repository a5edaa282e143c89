package p4rt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// This file reads cells of registers quickly. A controller compares two switches while a chain
// accepts no writes, so ten milliseconds matter. A P4Runtime response has one Entity for each cell.
// Decoding these with the protobuf library takes several times as long as reading the cells
// directly from the encoding.

// ReadRegisterCells reads some cells of a register, in the order of cells. If the target does not
// offer registers over P4Runtime, IsUnsupported(err) is true.
func (c *Client) ReadRegisterCells(ctx context.Context, register string, cells []int) ([]Value, error) {
	size, _, err := c.o.Info.RegisterSize(register)
	if err != nil {
		return nil, err
	}
	if len(cells) == 0 {
		return nil, nil
	}
	// Requesting many single cells costs more than reading cells that nobody needs, because the
	// switch must parse a request for each cell.
	all := len(cells) > size/16
	var what []*v1.Entity
	if all {
		e, err := c.o.Info.registerEntity(register, -1, nil)
		if err != nil {
			return nil, err
		}
		what = append(what, e)
	}
	for _, i := range cells {
		if i < 0 || i >= size {
			return nil, fmt.Errorf("register %s has no cell %d, only %d", register, i, size)
		}
		if !all {
			e, err := c.o.Info.registerEntity(register, i, nil)
			if err != nil {
				return nil, err
			}
			what = append(what, e)
		}
	}
	var found []Value
	if all {
		found, err = c.readWhole(ctx, register, size, what)
	} else {
		found = make([]Value, size)
		_, err = c.readCells(ctx, found, nil, what)
	}
	if err != nil {
		return nil, fmt.Errorf("reading register %s from %s: %w", register, c.o.Name, err)
	}
	out := make([]Value, len(cells))
	for n, i := range cells {
		if out[n] = found[i]; out[n] == nil {
			return nil, fmt.Errorf("reading register %s from %s: it did not say what cell %d is", register, c.o.Name, i)
		}
	}
	return out, nil
}

// These are names of an extension of P4Runtime by netcraq-switch (switch/p4rtserver, since.go). The
// switch names the state of a register that it has reported. If a caller sends this name later, the
// switch reports only the cells that have changed since. Other switches report all cells.
const (
	sinceHeader    = "netcraq-since"
	snapshotHeader = "netcraq-snapshot"
)

// toldFor is the time for which the client keeps the content of whole registers, for incremental
// reads. The reads of a recovery follow each other within this time.
const toldFor = 10 * time.Second

// told holds what a switch has reported about whole registers, by their names.
type told struct {
	mu   sync.Mutex
	kept map[string]*whole
}

// whole is the content of a register, and the switch's name for that state.
type whole struct {
	snapshot string
	cells    []Value
}

// take removes the content of a register and returns it. It returns nil if there is none.
func (t *told) take(register string) *whole {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.kept[register]
	delete(t.kept, register)
	return w
}

// keep stores the content of a register for a while.
func (t *told) keep(register string, w *whole) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept == nil {
		t.kept = map[string]*whole{}
	}
	t.kept[register] = w
	time.AfterFunc(toldFor, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.kept[register] == w {
			delete(t.kept, register)
		}
	})
}

// readWhole reads all cells of a register. If the register was read recently, readWhole requests
// only the changes. The caller must not change the cells.
func (c *Client) readWhole(ctx context.Context, register string, size int, what []*v1.Entity) ([]Value, error) {
	was := c.told.take(register)
	since := ""
	if was != nil {
		since = was.snapshot
	}
	cells := make([]Value, size)
	header, err := c.readCells(metadata.AppendToOutgoingContext(ctx, sinceHeader, since), cells, was, what)
	if err != nil {
		return nil, err
	}
	if names := header.Get(snapshotHeader); len(names) == 1 {
		c.told.keep(register, &whole{names[0], cells})
	}
	return cells, nil
}

// readCells reads cells of one register into the positions of their indices, and returns the
// answer's header. If the header says that the answer has only the changed cells, readCells takes
// all other cells from was.
func (c *Client) readCells(ctx context.Context, into []Value, was *whole, what []*v1.Entity) (metadata.MD, error) {
	ctx, cancel := c.rpcContext(ctx)
	defer cancel()
	allowed := c.o.Info.allowance(what)
	stream, err := c.rpc.Read(ctx, &v1.ReadRequest{DeviceId: c.o.DeviceID, Entities: what},
		grpc.ForceCodec(encoded{}), grpc.MaxCallRecvMsgSize(allowed.bytes))
	if err != nil {
		return nil, err
	}
	header, err := stream.Header()
	if err != nil {
		return nil, err
	}
	if since := header.Get(sinceHeader); len(since) == 1 {
		if was == nil || since[0] != was.snapshot || len(was.cells) != len(into) {
			return nil, fmt.Errorf("it tells what is other since %q, which it was not asked for", since[0])
		}
		copy(into, was.cells)
	}
	for {
		var b []byte
		err := stream.RecvMsg(&b)
		if errors.Is(err, io.EOF) {
			return header, nil
		}
		if err == nil {
			// the message counts as one entity, because its cells go into existing memory
			err = allowed.spend(1, len(b))
		}
		if err != nil {
			return nil, err
		}
		if err := eachCell(b, func(index uint64, v []byte) error {
			if index >= uint64(len(into)) {
				return fmt.Errorf("it has told of a cell %d, and the program has %d", index, len(into))
			}
			into[index] = v
			return nil
		}); err != nil {
			return nil, err
		}
	}
}

// encoded is gRPC's codec for protobuf, but it does not decode responses.
type encoded struct{}

// Name implements encoding.Codec. It returns the name of protobuf, which is the format on the wire.
func (encoded) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (encoded) Marshal(m any) ([]byte, error) { return proto.Marshal(m.(proto.Message)) }

// Unmarshal implements encoding.Codec. The caller must not keep the bytes.
func (encoded) Unmarshal(b []byte, into any) error {
	*into.(*[]byte) = append([]byte(nil), b...)
	return nil
}

// These are the numbers of the fields that lead from a ReadResponse to a cell's value
// (p4runtime.proto).
const (
	fieldEntities      = 1  // field of a ReadResponse that holds an Entity
	fieldRegisterEntry = 11 // field of an Entity that holds a RegisterEntry
	fieldIndex         = 2  // field of a RegisterEntry that holds an Index
	fieldIndexIndex    = 1  // field of an Index that holds the number
	fieldData          = 3  // field of a RegisterEntry that holds a P4Data
	fieldBitstring     = 1  // field of a P4Data that holds the value
)

// eachCell calls f for each cell of an encoded ReadResponse. The value is part of b.
func eachCell(b []byte, f func(index uint64, value []byte) error) error {
	for len(b) > 0 {
		entity, rest, err := field(b, fieldEntities)
		if err != nil {
			return err
		}
		b = rest
		entry, err := only(entity, fieldRegisterEntry)
		if err != nil {
			return err
		}
		var index uint64
		var value []byte
		for len(entry) > 0 {
			n, typ, size := protowire.ConsumeTag(entry)
			if size < 0 {
				return protowire.ParseError(size)
			}
			entry = entry[size:]
			if typ != protowire.BytesType {
				if size = protowire.ConsumeFieldValue(n, typ, entry); size < 0 {
					return protowire.ParseError(size)
				}
				entry = entry[size:]
				continue
			}
			part, size := protowire.ConsumeBytes(entry)
			if size < 0 {
				return protowire.ParseError(size)
			}
			entry = entry[size:]
			switch n {
			case fieldIndex:
				if index, err = number(part, fieldIndexIndex); err != nil {
					return err
				}
			case fieldData:
				if value, err = only(part, fieldBitstring); err != nil {
					return err
				}
			}
		}
		if value != nil {
			if err := f(index, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// field splits the first field off an encoded message. It returns the field's bytes if it is the
// wanted field, otherwise nil.
func field(b []byte, want protowire.Number) (value, rest []byte, err error) {
	n, typ, size := protowire.ConsumeTag(b)
	if size < 0 {
		return nil, nil, protowire.ParseError(size)
	}
	b = b[size:]
	if n == want && typ == protowire.BytesType {
		if value, size = protowire.ConsumeBytes(b); size >= 0 {
			return value, b[size:], nil
		}
	} else if size = protowire.ConsumeFieldValue(n, typ, b); size >= 0 {
		return nil, b[size:], nil
	}
	return nil, nil, protowire.ParseError(size)
}

// only returns the bytes of a message's field, or nil if the field is absent.
func only(b []byte, want protowire.Number) (value []byte, err error) {
	for len(b) > 0 && value == nil {
		if value, b, err = field(b, want); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// number returns a numeric field of a message, or 0 if the field is absent.
func number(b []byte, want protowire.Number) (v uint64, err error) {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return 0, protowire.ParseError(size)
		}
		b = b[size:]
		if n == want && typ == protowire.VarintType {
			v, size = protowire.ConsumeVarint(b)
		} else {
			size = protowire.ConsumeFieldValue(n, typ, b)
		}
		if size < 0 {
			return 0, protowire.ParseError(size)
		}
		b = b[size:]
	}
	return v, nil
}
