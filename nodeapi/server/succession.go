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

// A successor is a process that replaces a server. It connects to the Unix socket through which the
// predecessor offers its listening sockets, and receives the listening sockets (SCM_RIGHTS). It
// accepts connections from them, and reports this. Then the predecessor drains. At every moment
// some process listens, and the listening sockets remain the same. So no connection is refused or
// lost in a queue. If a successor dies before its report, nothing changes.

const (
	succeedWithin = 10 * time.Second // time limit for all messages between predecessor and successor
	mostHanded    = 16               // maximum number of listening sockets
	taken         = "taken\n"
)

// handed is the message of the predecessor that is sent together with the sockets.
type handed struct {
	// addresses of the listening sockets, in the order in which the sockets are sent
	Addresses []string `json:"addresses"`
}

// Offer lets a successor receive the listening sockets, through a Unix socket at path. Only root
// and the user of this process can connect to it. Offer returns nil when a successor has taken
// over, and the caller must then call Shutdown. It also returns when the server is closed. After
// Taken, the successor offers the listening sockets itself.
func (s *Server) Offer(path string) error {
	l, err := listenUnix(path, Access{Mode: 0o600, GID: -1}) // this replaces the socket of a predecessor
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
			// The successor now offers the listening sockets at the same path.
			l.leave()
			return nil
		}
		s.log.Warn("a successor did not take the sockets", "error", err)
	}
}

// handOver sends the listening sockets to a process that has connected to receive them.
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

// pausing is a period in which the server accepts no connections. New connections wait in the
// kernel's queue.
type pausing struct {
	parked chan struct{} // receives one value for each listener from which no goroutine accepts any more
	over   chan struct{} // closed when the period ends
}

func (p *pausing) wait() {
	p.parked <- struct{}{}
	<-p.over
}

// pause stops accepting connections until resume is called. It is needed because making an os.File
// of a socket makes the socket blocking for a moment, for all processes that share it. If a thread
// began to accept at that moment, it would block until a connection comes. Closing the socket would
// then wait for that thread.
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
			if ended { // keep the deadline, because from now on the successor accepts connections from this listener
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

// Succession has the listeners that a successor has received from its predecessor.
type Succession struct {
	// Listeners has the listeners by address, in the format of Listen.
	Listeners map[string]net.Listener

	nc *net.UnixConn
}

// TakeOver receives the listening sockets from the server that offers them at path.
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

// inherited makes a listener from a received socket. The listener also owns the socket's file.
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

// Taken tells the predecessor that this process accepts connections from all of the listeners. The
// predecessor then drains.
func (t *Succession) Taken() error {
	defer t.nc.Close()
	_, err := t.nc.Write([]byte(taken))
	return err
}
