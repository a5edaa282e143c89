package gateway

import "sync"

// Capacity of a mailbox, and the size that each message adds to its own length. Both are in bytes.
const (
	mailboxBytes = 4 << 20
	messageBytes = 64
)

// mailbox holds the messages that wait to be sent on one stream. A message for many streams is in
// memory only once. Consecutive parts of the same message count once in a mailbox.
type mailbox struct {
	mu       sync.Mutex
	changed  sync.Cond
	limit    int
	messages []pieces
	sizes    []int
	bytes    int
	last     *byte // body of the last message that was added
	end      error // reason for which the mailbox was closed
	closed   bool
}

func newMailbox(limit int) *mailbox {
	m := &mailbox{limit: limit}
	m.changed.L = &m.mu
	return m
}

// put adds a message. If the mailbox is full, put waits for room, or drops the message if wait is
// false. It reports whether the message was added.
func (m *mailbox) put(p pieces, wait bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for wait && m.bytes >= m.limit && !m.closed {
		m.changed.Wait()
	}
	if m.closed || m.bytes >= m.limit {
		return m.closed // no goroutine will read the message
	}
	m.add(p)
	return true
}

// room waits until the mailbox is not full.
func (m *mailbox) room() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.bytes >= m.limit && !m.closed {
		m.changed.Wait()
	}
}

// force adds a message even if the mailbox is full. It is for rare messages.
func (m *mailbox) force(p pieces) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.add(p)
	}
}

func (m *mailbox) add(p pieces) {
	size, body := messageBytes, p.body()
	if body != m.last || body == nil {
		size += p.len()
	}
	m.last = body
	m.messages, m.sizes, m.bytes = append(m.messages, p), append(m.sizes, size), m.bytes+size
	m.changed.Broadcast()
}

// take removes and returns all messages. If there are none, it waits. After the last message it
// returns the reason for which the mailbox was closed.
func (m *mailbox) take() ([]pieces, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.messages) == 0 {
		if m.closed {
			return nil, m.end
		}
		m.changed.Wait()
	}
	all := m.messages
	m.messages, m.sizes, m.last = nil, nil, nil
	return all, nil
}

// sent records that the messages that take returned last were sent.
func (m *mailbox) sent() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes = 0
	for _, n := range m.sizes {
		m.bytes += n
	}
	m.changed.Broadcast()
}

func (m *mailbox) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// close closes a mailbox with a reason. take still returns the messages in it. Only the first
// call's reason counts.
func (m *mailbox) close(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed, m.end = true, why
	m.changed.Broadcast()
}
