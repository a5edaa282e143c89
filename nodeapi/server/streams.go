package server

import (
	"context"
	"net"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/changes"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/streams/source"
)

// source makes the source for a stream of a namespace.
func (s *Server) source(namespace string, c nodeapi.StreamSource) (source.Source, error) {
	kind := c.Kind()
	if kind == "keys" {
		return s.keysSource(namespace, c.Keys.Prefix), nil
	}
	if makes := s.config.Sources[kind]; makes != nil {
		return makes(namespace, c)
	}
	if kind == "" {
		return nil, rpc.Invalid("source has to have one member that this server knows")
	}
	return nil, nodeapi.Errorf(nodeapi.CodeUnavailable, "ask the operator of the node's server for it",
		"this server has no source of the kind %s", kind)
}

func (s *Server) keysSource(namespace, prefix string) source.Source {
	return &changes.Keys{Namespace: namespace, Prefix: prefix,
		Watch: func(ctx context.Context, w store.Watch, tell func([]nodeapi.Event)) error {
			return s.config.Store.Watch(ctx, w, func(changes []store.Change) {
				events := make([]nodeapi.Event, 0, len(changes))
				for _, c := range changes {
					if !cell.Reserved(c.Key.Name) {
						events = append(events, s.event(ctx, c))
					}
				}
				tell(events)
			})
		}}
}

// streamsOf returns the server's broker of streams, or an error if the server has no streams.
func (k *call) streamsOf() (*broker.Broker, error) {
	if b := k.c.s.streams; b != nil {
		return b, nil
	}
	return nil, nodeapi.Errorf(nodeapi.CodeUnavailable, "", "this server keeps no streams")
}

// streamsIn returns the broker of streams and the namespace of a request, if the caller has the
// necessary right there.
func (k *call) streamsIn(ctx context.Context, namespace string) (*broker.Broker, string, error) {
	b, err := k.streamsOf()
	if err != nil {
		return nil, "", err
	}
	ns, err := k.place(ctx, namespace)
	return b, ns, err
}

// stream returns the stream of a request, if the caller has the necessary right in the stream's
// namespace.
func (k *call) stream(ctx context.Context, d *nodeapi.StreamData) (*broker.Stream, error) {
	b, ns, err := k.streamsIn(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	return b.Find(ctx, ns, d.Stream)
}

// openStream describes a stream. For an existing stream, the caller needs the right to read. To
// create a stream, the caller needs the right to create keys. To fill it with changes of keys, the
// caller also needs the right to watch these keys.
func openStream(ctx context.Context, k *call, d *nodeapi.OpenStreamData) (any, error) {
	b, err := k.streamsOf()
	if err != nil {
		return nil, err
	}
	ns, err := k.named(d.Namespace)
	if err != nil {
		return nil, err
	}
	mayMake := k.may(ctx, authority.Create, ns)
	if mayMake != nil {
		if err := k.may(ctx, authority.Read, ns); err != nil {
			return nil, err
		}
	}
	if mayMake == nil && d.Config != nil && d.Config.Source != nil && d.Config.Source.Keys != nil {
		if d.Config.Source.Keys.Prefix != "" {
			if err := checkKey(d.Config.Source.Keys.Prefix); err != nil {
				return nil, err
			}
		}
		mayMake = k.may(ctx, authority.Watch, ns)
	}
	s, made, err := b.Open(ctx, ns, d.Stream, d.Config, mayMake)
	if err != nil {
		return nil, err
	}
	return &nodeapi.StreamAnswer{Stream: s.Name, Incarnation: s.Incarnation, Made: made, Config: s.Config,
		State: s.State()}, nil
}

func deleteStream(ctx context.Context, k *call, d *nodeapi.StreamData) (any, error) {
	b, ns, err := k.streamsIn(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	return struct{}{}, b.Delete(ctx, ns, d.Stream)
}

func listStreams(ctx context.Context, k *call, d *nodeapi.ListStreamsData) (any, error) {
	b, ns, err := k.streamsIn(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	names, err := b.List(ctx, ns)
	return &nodeapi.ListStreamsAnswer{Streams: names}, err
}

func appendRecords(ctx context.Context, k *call, d *nodeapi.AppendData) (any, error) {
	s, err := k.stream(ctx, &d.StreamData)
	if err != nil {
		return nil, err
	}
	if len(d.Records) == 0 {
		return nil, rpc.Invalid("there are no records to append")
	}
	records := make([]stream.Record, len(d.Records))
	for i, r := range d.Records {
		value, err := bytesOf(&nodeapi.PutData{Value: r.Value, ValueBase64: r.ValueBase64})
		if err != nil {
			return nil, err
		}
		records[i] = stream.Record{Data: value, Mark: r.Mark}
	}
	if source := s.Config.Source; source != nil && source.JetStream != nil {
		return keepRecords(ctx, s, d, records)
	}
	pins, err := k.filesOf(s, d.Records)
	if err != nil {
		return nil, err
	}
	offset, n, err := s.AppendWithFiles(ctx, d.Partition, records, pins, d.At)
	if pins != nil { // release the files of records that were not appended
		letGo(slices.Concat(pins[n:]...))
	}
	if err != nil {
		return nil, asRead(err) // use asRead, because nothing was appended
	}
	return &nodeapi.AppendAnswer{Offset: offset, Appended: n}, nil
}

// keepRecords passes records to the source of a stream, which stores them in its origin.
func keepRecords(ctx context.Context, s *broker.Stream, d *nodeapi.AppendData, records []stream.Record) (any, error) {
	if d.Partition != 0 || d.At != nil {
		return nil, rpc.Invalid("JetStream keeps this stream: pass neither a partition nor an offset")
	}
	entries := make([]source.Entry, len(records))
	for i, r := range d.Records {
		if r.Mark != 0 || len(r.Files) > 0 {
			return nil, rpc.Invalid("a record that JetStream keeps has its mark from there, and refers to no files")
		}
		entries[i] = source.Entry{Data: records[i].Data, Subject: r.Subject, ID: r.ID}
	}
	numbers, err := s.Keep(ctx, entries)
	if len(numbers) == 0 && err != nil {
		return nil, err
	}
	return &nodeapi.AppendAnswer{Appended: len(numbers), Sequences: numbers}, nil
}

const (
	recordsAtOnce = 1024
	bytesAtOnce   = nodeapi.MaxMessage / 2 // maximum number of bytes of values in one answer
)

func readRecords(ctx context.Context, k *call, d *nodeapi.ReadData) (any, error) {
	s, err := k.stream(ctx, &d.StreamData)
	if err != nil {
		return nil, err
	}
	if d.MaxRecords < 0 || d.MaxBytes < 0 || d.WaitMillis < 0 || d.WaitMillis > nodeapi.MaxTimeoutMillis {
		return nil, rpc.Invalid("maxRecords, maxBytes and waitMs are 0 or more, and waitMs at most %d", nodeapi.MaxTimeoutMillis)
	}
	most, bytes := recordsAtOnce, bytesAtOnce
	if d.MaxRecords > 0 {
		most = min(most, d.MaxRecords)
	}
	if d.MaxBytes > 0 {
		bytes = min(bytes, d.MaxBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(d.WaitMillis)*time.Millisecond)
	defer cancel()
	d.Consumer = broker.OwnName(k.c.s.config.Authority.Subject(k.c.peer), d.Consumer)
	encoded, first := 0, true
	tooLarge := 0
	b, err := s.Read(ctx, d, most, func(r stream.Record) bool {
		bytes -= len(r.Data)
		encoded += encodedBytes(r.Data) + recordOverhead
		fits := encoded <= nodeapi.MaxMessage-answerOverhead
		if first && !fits {
			tooLarge = len(r.Data)
		}
		fits = fits && (first || bytes >= 0)
		first = false
		return fits
	})
	switch {
	case err != nil:
		return nil, err
	case tooLarge > 0:
		return nil, nodeapi.Errorf(nodeapi.CodeTooLarge, "subscribe, or read on behind it",
			"record %d has %d bytes, and does not go into a message", b.Offset, tooLarge)
	}
	out := &nodeapi.ReadAnswer{Incarnation: s.Incarnation, Offset: b.Offset, Next: b.Next, Missed: b.Missed,
		Records: make([]nodeapi.StreamRecord, len(b.Records))}
	for i, r := range b.Records {
		out.Records[i] = nodeapi.StreamRecord{Mark: r.Mark, Time: r.Time / 1000}
		if utf8.Valid(r.Data) {
			text := string(r.Data)
			out.Records[i].Value = &text
		} else {
			out.Records[i].ValueBase64 = r.Data
		}
	}
	return out, nil
}

// recordOverhead is an upper bound for the number of bytes around the value of a record in an
// answer. answerOverhead is an upper bound for the bytes around all records.
const recordOverhead, answerOverhead = 128, 512

// encodedBytes returns an upper bound for the length of a value in a message.
func encodedBytes(b []byte) int {
	if !utf8.Valid(b) {
		return (len(b)+2)/3*4 + 2
	}
	n := len(b) + 2
	for _, c := range b {
		if c < 0x20 || c == '"' || c == '\\' {
			n += 5
		}
	}
	return n
}

// rightsEvery is the interval at which the server checks whether a consumer may still read.
const rightsEvery = time.Second

// mayBePassed returns an error if memory cannot be passed over this connection.
func (k *call) mayBePassed() error {
	if _, ok := k.c.nc.(*net.UnixConn); !ok {
		return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "use read, or connect to the node's Unix socket",
			"memory is passed by a Unix socket only")
	}
	return nil
}

// subscribe lets a consumer map the memory of a stream. The subscription lasts until the consumer
// ends it or loses its right to read.
func subscribe(ctx context.Context, k *call, d *nodeapi.SubscribeData) (any, error) {
	if err := k.mayBePassed(); err != nil {
		return nil, err
	}
	s, err := k.stream(ctx, &d.StreamData)
	if err != nil {
		return nil, err
	}
	d.Consumer = broker.OwnName(k.c.s.config.Authority.Subject(k.c.peer), d.Consumer)
	u, err := s.Subscribe(d, k.c.hungUp)
	if err != nil {
		return nil, err
	}
	defer u.Close()
	if err := k.pass(ctx, &u.Answer, u.Answer.Descriptors, u.Files); err != nil {
		return nil, err
	}
	tick := time.NewTicker(rightsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := k.place(ctx, s.Namespace); err != nil {
				if rpc.ToAnswer(err, false).Code == nodeapi.CodePermissionDenied {
					u.Close()
					// move the stream to new memory, because the consumer keeps its mapping of the
					// old memory
					s.Renew()
				}
				return nil, err
			}
		case <-u.Done():
			return nil, u.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
