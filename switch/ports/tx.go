package ports

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// txBatch is the largest number of frames in one sendmmsg call.
const txBatch = 64

// txSlot is the size of the buffer for each frame in bytes. A larger frame gets a buffer of its
// own.
const txSlot = 2048

// mmsghdr is the kernel's struct mmsghdr, which package unix does not define.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// txQueue collects frames for one port until they are sent together. The zero value is an empty
// queue.
type txQueue struct {
	n     int
	arena []byte
	iov   []unix.Iovec
	msgs  []mmsghdr
}

func (q *txQueue) full() bool { return q.n == txBatch }

// add copies frame into the queue, which must not be full.
func (q *txQueue) add(frame []byte) {
	if q.arena == nil {
		q.arena = make([]byte, txBatch*txSlot)
		q.iov = make([]unix.Iovec, txBatch)
		q.msgs = make([]mmsghdr, txBatch)
		for i := range q.msgs {
			q.msgs[i].hdr.Iov = &q.iov[i]
			q.msgs[i].hdr.Iovlen = 1
		}
	}
	room := q.arena[q.n*txSlot : (q.n+1)*txSlot]
	if len(frame) > txSlot {
		room = make([]byte, len(frame))
	}
	q.iov[q.n].Base = &room[0]
	q.iov[q.n].SetLen(copy(room, frame))
	q.n++
}

// reset drops the queued frames and returns their number.
func (q *txQueue) reset() int {
	n := q.n
	q.n = 0
	return n
}

// send passes the queue to the kernel. If the kernel refuses a frame (too large for the MTU, no
// buffer space, interface down), send drops and counts it, as a switch does.
func (q *txQueue) send(fd int) (packets, bytes, dropped uint64) {
	for i := 0; i < q.n; {
		sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd),
			uintptr(unsafe.Pointer(&q.msgs[i])), uintptr(q.n-i), unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 {
			if errno == unix.EINTR {
				continue
			}
			if errors.Is(errno, unix.ENETDOWN) || errors.Is(errno, unix.ENXIO) ||
				errors.Is(errno, unix.ENODEV) || errors.Is(errno, unix.EBADF) {
				dropped += uint64(q.n - i)
				break
			}
			dropped++
			i++
			continue
		}
		for range sent {
			packets++
			bytes += uint64(q.iov[i].Len)
			i++
		}
	}
	q.n = 0
	return packets, bytes, dropped
}
