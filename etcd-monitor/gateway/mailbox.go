package gateway

import "sync"

// Capacity of a mailbox in bytes, and a message's overhead in it.
const (
	mailboxBytes = 4 << 20
	messageBytes = 64
)

// mailbox holds the messages that wait to be sent on one stream. A message for many streams is in
// memory once, and consecutive parts of the same message in a mailbox count once.
type mailbox struct {
	mu       sync.Mutex
	changed  sync.Cond
	limit    int
	messages []pieces
	sizes    []int
	bytes    int
	last     *byte // body of the last message that was put in
	end      error // reason for the end
	closed   bool
}

func newMailbox(limit int) *mailbox {
	m := &mailbox{limit: limit}
	m.changed.L = &m.mu
	return m
}

// put puts a message in. If the mailbox is full, put waits or, without wait, drops the message. It
// reports whether the message is in.
func (m *mailbox) put(p pieces, wait bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for wait && m.bytes >= m.limit && !m.closed {
		m.changed.Wait()
	}
	if m.closed || m.bytes >= m.limit {
		return m.closed // no one will read it
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

// force puts a message in even if the mailbox is full. It is for rare messages.
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

// take removes and returns all messages. It waits until there are some. After the last one it
// returns the reason for the end.
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

// sent records that the messages that were taken last have been sent.
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

// close ends a mailbox with a reason. Its messages may still be taken. Only the first reason
// counts.
func (m *mailbox) close(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed, m.end = true, why
	m.changed.Broadcast()
}
