package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/streams/source"
)

// patience is the time limit for a request to JetStream.
const patience = 5 * time.Second

// noteEvery is the interval at which the source stores the position of an idle partition.
const noteEvery = 30 * time.Second

// These limit how many messages are requested from JetStream before they are appended. So they
// limit the memory that is used while a consumer is slow.
const (
	messagesAhead = 256
	bytesAhead    = 4 << 20
)

// messages is a source that reads the messages of a JetStream stream. A record has the data of a
// message, and the sequence of the message is the mark of the record.
type messages struct {
	o               *origin
	stream, subject string
	namespace       string   // namespace of the stream that the source fills
	may             []string // subjects to which programs of that namespace may append
}

// Run implements source.Source. Its consumer in JetStream acknowledges nothing, because the records
// of the partition have the position.
func (m *messages) Run(ctx context.Context, to source.Sink) error {
	c := m.o.conn.Load()
	if c == nil {
		return errors.New("there is no connection to JetStream yet")
	}
	info, err := m.look(ctx, c)
	if err != nil {
		return err
	}
	origin := info.Created.UTC().Format(time.RFC3339Nano)
	place := to.Place()
	after := max(place.Mark, place.Note.Mark)
	// JetStream has a different stream with this name now, so read it from the beginning
	if place.Next == 0 || place.Note.Origin != origin {
		after = 0
	}
	// the JetStream stream was restored to an earlier state, so its next message reuses a sequence
	after = min(after, info.State.LastSeq)
	if first := info.State.FirstSeq; after > 0 && first > after+1 {
		to.Missed(first - after - 1)
	}
	note := source.Note{Origin: origin, Mark: after}
	if err := to.Note(note); err != nil {
		return err
	}
	cfg := js.ConsumerConfig{AckPolicy: js.AckNonePolicy, DeliverPolicy: js.DeliverByStartSequencePolicy,
		OptStartSeq: after + 1, FilterSubject: m.subject, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: time.Minute}
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	consumer, err := c.js.CreateConsumer(short, m.stream, cfg)
	if err != nil {
		return fmt.Errorf("a consumer at JetStream: %w", err)
	}
	defer func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		// if this fails, JetStream deletes the consumer later by itself
		_ = c.js.DeleteConsumer(short, m.stream, consumer.CachedInfo().Name)
	}()
	// Check the stream again. A consumer is deleted together with its stream. So if the stream is
	// still the same, the consumer belongs to it.
	again, err := m.look(ctx, c)
	if err != nil {
		return err
	}
	if !again.Created.Equal(info.Created) {
		return fmt.Errorf("JetStream's %s was made anew", m.stream)
	}
	limit := max(bytesAhead, 2*int(c.nc.MaxPayload()))
	all, err := consumer.Messages(js.PullMaxMessagesWithBytesLimit(messagesAhead, limit),
		js.PullHeartbeat(2*time.Second))
	if err != nil {
		return fmt.Errorf("messages of JetStream: %w", err)
	}
	defer all.Stop()
	n, of := to.Partition()
	noted := time.Now()
	for expect := uint64(1); ; expect++ {
		msg, err := all.Next(js.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("messages of JetStream: %w", err)
		}
		meta, err := msg.Metadata()
		switch {
		case err != nil:
			return fmt.Errorf("messages of JetStream: %w", err)
		case meta.Sequence.Consumer != expect || meta.Sequence.Stream <= after:
			return fmt.Errorf("message %d came as the consumer's %d, not its %d", meta.Sequence.Stream,
				meta.Sequence.Consumer, expect)
		}
		after = meta.Sequence.Stream
		switch {
		case source.Partition(msg.Subject(), of) != n:
		case len(msg.Data()) > to.MaxRecord():
			to.Missed(1)
		default:
			if err := to.Append(ctx, []stream.Record{{Data: msg.Data(), Mark: after}}); err != nil {
				return err
			}
			continue
		}
		if time.Since(noted) > noteEvery {
			noted, note.Mark = time.Now(), after
			if err := to.Note(note); err != nil {
				return err
			}
		}
	}
}

func (m *messages) look(ctx context.Context, c *connection) (*js.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := c.js.Stream(ctx, m.stream)
	if err != nil {
		return nil, fmt.Errorf("JetStream's %s: %w", m.stream, err)
	}
	return s.CachedInfo(), nil
}
