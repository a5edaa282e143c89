package jetstream

import (
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/streams/source"
)

// These are error codes of JetStream.
const (
	codeTooLarge    = 10054
	codeOtherStream = 10060
	codeFull        = 10077
)

const maxID = 256 // maximum length of the ID of a record, in bytes

// underWay is the maximum number of messages that are being published at the same time.
const underWay = 256

// Keep implements source.Keeper. It publishes the messages one after the other. Otherwise JetStream
// could store later messages although it refuses an earlier one.
func (m *messages) Keep(ctx context.Context, entries []source.Entry) (sequences []uint64, err error) {
	for _, e := range entries {
		if err := m.check(e); err != nil {
			return nil, err
		}
	}
	c := m.o.conn.Load()
	// without this check, the client would buffer the message, and send it after the caller has
	// stopped waiting
	if c == nil || !c.nc.IsConnected() {
		return nil, away("there is no connection to JetStream")
	}
	select {
	case m.o.keeping <- struct{}{}:
	case <-ctx.Done():
		return nil, nodeapi.Errorf(nodeapi.CodeTimeout, "try again", "there was too much to be kept before it")
	}
	defer func() { <-m.o.keeping }()
	for _, e := range entries {
		options := []js.PublishOpt{js.WithExpectStream(m.stream), js.WithRetryAttempts(0)}
		if e.ID != "" { // include the namespace, because the same ID in another namespace is a different record
			options = append(options, js.WithMsgID(m.namespace+"/"+e.ID))
		}
		short, cancel := context.WithTimeout(ctx, patience)
		ack, err := c.js.Publish(short, m.subjectOf(e), e.Data, options...)
		cancel()
		if err != nil {
			return sequences, whyNot(err)
		}
		sequences = append(sequences, ack.Sequence)
	}
	return sequences, nil
}

func (m *messages) subjectOf(e source.Entry) string {
	if e.Subject != "" {
		return e.Subject
	}
	return m.subject
}

// check returns an error if a program may not store this record.
func (m *messages) check(e source.Entry) error {
	subject := m.subjectOf(e)
	switch {
	case subject == "":
		return invalid("give the record's subject: the stream has those of many")
	case len(subject) > nodeapi.MaxKeyName || !server.IsValidLiteralSubject(subject) || !plain(subject):
		return invalid("%.80q is no subject of a record", subject)
	case m.subject != "" && !server.SubjectMatchesFilter(subject, m.subject):
		return invalid("the stream has what is of %q: %.80q would not come there", m.subject, subject)
	case len(e.ID) > maxID || !plain(e.ID):
		return invalid("the id of a record has at most %d bytes of UTF-8, without spaces", maxID)
	}
	// Subjects that begin with '$' are commands to NATS. Subjects that begin with '_' are inboxes,
	// through which this process receives answers.
	if subject[0] != '$' && subject[0] != '_' {
		for _, may := range m.may {
			if server.SubjectMatchesFilter(subject, may) {
				return nil
			}
		}
	}
	return nodeapi.Errorf(nodeapi.CodePermissionDenied, "ask the operator of the node's server for it",
		"programs of the namespace %s may not append to JetStream's %.80q", m.namespace, subject)
}

// plain reports whether a text is UTF-8 without spaces and control characters, so that a header can
// contain it.
func plain(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}) < 0
}

func invalid(format string, args ...any) error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", format, args...)
}

func away(format string, args ...any) error {
	return nodeapi.Errorf(nodeapi.CodeUnavailable, "try again", format, args...)
}

// whyNot returns why JetStream has not acknowledged a message. The error also says whether
// JetStream may have stored the message.
func whyNot(err error) error {
	var said *js.APIError
	switch {
	case errors.As(err, &said) && said.ErrorCode == codeOtherStream:
		return invalid("the subject is another stream's of JetStream")
	case errors.As(err, &said) && said.ErrorCode == codeTooLarge, errors.Is(err, nats.ErrMaxPayload):
		return nodeapi.Errorf(nodeapi.CodeTooLarge, "append smaller records", "JetStream takes no record of this size")
	case errors.As(err, &said) && said.ErrorCode == codeFull:
		return nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "read what is there, or ask the operator for more room",
			"JetStream's stream takes nothing more: %s", said.Description)
	case errors.As(err, &said):
		return away("JetStream does not keep it: %s", said.Description)
	case errors.Is(err, js.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return away("no stream of JetStream has this subject, or it does not answer")
	}
	return nodeapi.Errorf(nodeapi.CodeOutcomeUnknown, "append it again, with the same id",
		"JetStream has not said in time whether it keeps it: %v", err)
}
