package server

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/nodeapi/authority"
)

// A successor is a process that replaces a server. It connects to the socket at which the
// predecessor offers its listening sockets, receives them (SCM_RIGHTS), accepts connections from
// them, and reports that. Then the predecessor drains. Some process listens at every moment, and
// the sockets remain the same, so no connection is refused or lost in a queue. If a successor dies
// before its report, nothing changes.

const (
	succeedWithin = 10 * time.Second // limit for the whole conversation
	mostHanded    = 16               // maximum number of listening sockets
	taken         = "taken\n"
)

// handed is the predecessor's message that accompanies the sockets.
type handed struct {
	Addresses []string `json:"addresses"` // addresses of the sockets, in their order
}

// Offer lets a successor take the listening sockets, through a socket at path that only root and
// this process's user can connect to. It returns nil when a successor has taken them; the caller
// must then call Shutdown. It also returns if the server is closed. After Taken, the successor
// offers the sockets itself.
func (s *Server) Offer(path string) error {
	l, err := listenUnix(path, Access{Mode: 0o600, GID: -1}) // replaces the socket of a predecessor
	if err != nil {
		return err
	}
	defer l.Close()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.ctx.Done():
			l.Close()
		case <-stop:
		}
	}()
	for {
		nc, err := l.AcceptUnix()
		if err != nil {
			if s.ctx.Err() != nil {
				return ErrClosed
			}
			return err
		}
		err = s.handOver(nc)
		nc.Close()
		if err == nil {
			// The successor offers them at the same place now.
			l.leave()
			return nil
		}
		s.log.Warn("a successor did not take the sockets", "error", err)
	}
}

// handOver gives the sockets to a process that asks for them.
func (s *Server) handOver(nc *net.UnixConn) error {
	_ = nc.SetDeadline(time.Now().Add(succeedWithin))
	p := authority.Identifier{}.Identify(nc)
	if p.Kind != authority.Process || p.UID != 0 && int(p.UID) != os.Geteuid() {
		return fmt.Errorf("%v is neither root nor this process's user", p)
	}
	resume, err := s.pause()
	if err != nil {
		return err
	}
	defer resume()
	s.mu.Lock()
	var say handed
	var files []*os.File
	var listeners []net.Listener
	for l := range s.listeners {
		source, ok := l.(interface{ File() (*os.File, error) })
		if !ok || err != nil {
			continue
		}
		var f *os.File
		if f, err = source.File(); err == nil {
			files, listeners = append(files, f), append(listeners, l)
			say.Addresses = append(say.Addresses, l.Addr().Network()+"://"+l.Addr().String())
		}
	}
	s.mu.Unlock()
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	text, err := json.Marshal(say)
	if err != nil {
		return err
	}
	if _, _, err := nc.WriteMsgUnix(append(text, '\n'), unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	answer, err := bufio.NewReader(nc).ReadString('\n')
	if err != nil || answer != taken {
		return fmt.Errorf("it said %q: %w", answer, errors.Join(err))
	}
	for _, l := range listeners {
		if f, ok := l.(*socketFile); ok {
			f.leave()
		}
	}
	s.advance(draining)
	return nil
}

// pausing is a period in which no connection is accepted. New connections wait in the kernel's
// queue.
type pausing struct {
	parked chan struct{} // gets one value for each listener that no goroutine waits for anymore
	over   chan struct{} // closed at the end of the period
}

func (p *pausing) wait() {
	p.parked <- struct{}{}
	<-p.over
}

// pause stops accepting connections until resume is called. Making an os.File of a socket makes the
// socket blocking for a moment, for all processes that share it. A thread that began to wait for a
// connection at that moment would wait until one comes, and closing the socket would wait for that
// thread.
func (s *Server) pause() (resume func(), err error) {
	s.mu.Lock()
	p := &pausing{make(chan struct{}, len(s.listeners)), make(chan struct{})}
	s.pausing = p
	var all []net.Listener
	for l := range s.listeners {
		if d, ok := l.(interface{ SetDeadline(time.Time) error }); ok {
			all = append(all, l)
			_ = d.SetDeadline(time.Unix(1, 0))
		}
	}
	s.mu.Unlock()
	resume = func() {
		s.mu.Lock()
		s.pausing = nil
		ended := s.stage != serving
		s.mu.Unlock()
		for _, l := range all {
			if ended { // keep the deadline, because this listener is left to the successor
				break
			}
			if c, ok := l.(syscall.Conn); ok {
				if raw, err := c.SyscallConn(); err == nil {
					_ = raw.Control(func(fd uintptr) { _ = unix.SetNonblock(int(fd), true) })
				}
			}
			_ = l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Time{})
		}
		close(p.over)
	}
	late := time.NewTimer(succeedWithin)
	defer late.Stop()
	for range all {
		select {
		case <-p.parked:
		case <-late.C:
			resume()
			return nil, errors.New("its listeners go on taking connections")
		}
	}
	return resume, nil
}

// Succession is the listeners that a successor has received from its predecessor.
type Succession struct {
	// Listeners are keyed by address, as in Listen.
	Listeners map[string]net.Listener

	nc *net.UnixConn
}

// TakeOver gets the listening sockets of the server that offers them at path.
func TakeOver(path string) (_ *Succession, err error) {
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			nc.Close()
		}
	}()
	_ = nc.SetDeadline(time.Now().Add(succeedWithin))
	text, rights := make([]byte, 16<<10), make([]byte, unix.CmsgSpace(mostHanded*4))
	n, m, flags, _, err := nc.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return nil, errors.New("there are too many listening sockets")
	}
	var fds []int
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil {
		return nil, err
	}
	for _, message := range messages {
		got, err := unix.ParseUnixRights(&message)
		if err != nil {
			return nil, err
		}
		fds = append(fds, got...)
	}
	t := &Succession{Listeners: map[string]net.Listener{}, nc: nc}
	var say handed
	if err = json.Unmarshal(text[:n], &say); err == nil && len(say.Addresses) != len(fds) {
		err = fmt.Errorf("%d addresses, %d sockets", len(say.Addresses), len(fds))
	}
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), "listener")
		if err == nil {
			t.Listeners[say.Addresses[i]], err = inherited(f, say.Addresses[i])
		}
		f.Close()
	}
	if err != nil {
		for _, l := range t.Listeners {
			if l != nil {
				l.Close()
			}
		}
		return nil, err
	}
	return t, nil
}

// inherited makes a listener of a received socket, and takes over its file.
func inherited(f *os.File, address string) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return l, nil
	}
	u.SetUnlinkOnClose(false)
	path := address[len("unix://"):]
	made, err := os.Stat(path)
	if err != nil {
		l.Close()
		return nil, err
	}
	return &socketFile{UnixListener: u, path: path, made: made}, nil
}

// Taken tells the predecessor that connections are accepted from all of the listeners, so that it
// drains.
func (t *Succession) Taken() error {
	defer t.nc.Close()
	_, err := t.nc.Write([]byte(taken))
	return err
}
