package server

import (
	"context"
	"os"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
	"github.com/netcraq/netcraq/streams/files"
)

// held has the files that a connection holds through openFiles. Requests may hold further files.
type held struct {
	files map[heldName][]*files.File
	over  bool // whether the connection has ended
}

type heldName struct{ namespace, name string }

// openFiles opens files for the connection, and releases other files in the same call. So a reader
// needs only one exchange with the server for each record.
func openFiles(ctx context.Context, k *call, d *nodeapi.OpenFilesData) (any, error) {
	if err := k.mayBePassed(); err != nil {
		return nil, err
	}
	if len(d.Files) > nodeapi.MaxRecordFiles {
		return nil, rpc.Invalid("%d files; ask for %d at most", len(d.Files), nodeapi.MaxRecordFiles)
	}
	if len(d.GiveBack) > nodeapi.MaxAskedFiles {
		return nil, rpc.Invalid("%d files to give back; %d at most", len(d.GiveBack), nodeapi.MaxAskedFiles)
	}
	b, ns, err := k.streamsIn(ctx, d.Namespace)
	if err != nil {
		// Releasing files needs no right, because the caller may have lost its rights.
		if ns = d.Namespace; ns == "" {
			ns = k.namespace
		}
		k.c.giveBack(ns, d.GiveBack)
		return nil, err
	}
	if len(d.Files)+len(d.GiveBack) == 0 {
		return nil, rpc.Invalid("give files or giveBack")
	}
	// open files before releasing others, so that a file in both lists is not lost
	opened, err := b.Files().Open(ns, d.Files)
	k.c.giveBack(ns, d.GiveBack)
	if err != nil {
		return nil, err
	}
	answer := &nodeapi.OpenFilesAnswer{Descriptors: len(opened), Files: make([]nodeapi.OpenedFile, len(opened))}
	for i, f := range opened {
		answer.Files[i] = nodeapi.OpenedFile{File: f.Name, Bytes: f.Bytes, Rewritable: f.Rewritable}
		if f.Rewritable && !d.Rewritable {
			releaseAll(opened)
			return nil, errRewritable()
		}
	}
	if err := k.c.hold(ns, opened); err != nil {
		releaseAll(opened)
		return nil, err
	}
	if len(opened) > 0 {
		if err := k.lendAll(ctx, opened); err != nil {
			k.c.giveBack(ns, d.Files)
			return nil, err
		}
	}
	return answer, nil
}

func errRewritable() error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "read with trusted, where all who append are",
		"the file is rewritable: its maker may change it while it is read")
}

func releaseAll(opened []*files.File) {
	for _, f := range opened {
		f.Release()
	}
}

// lendAll attaches the descriptors of opened files to the answer of a successful request.
func (k *call) lendAll(ctx context.Context, opened []*files.File) error {
	s := k.c.s
	subject := s.config.Authority.Subject(k.c.peer)
	if err := s.flying.wait(ctx, subject, len(opened), s.limits.DescriptorTime/2); err != nil {
		return err
	}
	out := make([]*os.File, 0, len(opened))
	for _, f := range opened {
		r, err := f.Reader()
		if err != nil {
			closeAll(out)
			s.flying.give(subject, len(opened))
			return err
		}
		out = append(out, r...)
	}
	k.descriptors = out
	return nil
}

// hold adds files to the held files of the connection. Their number counts towards the quota of
// watches.
func (c *conn) hold(namespace string, opened []*files.File) error {
	if err := c.account.Watch(len(opened)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &c.held
	if c.watched+len(opened) > c.s.limits.watches || h.over {
		c.account.Unwatch(len(opened))
		return nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "give back files that are not used",
			"a connection holds and watches at most %d; it does %d, and would %d more", c.s.limits.watches, c.watched,
			len(opened))
	}
	if h.files == nil {
		h.files = map[heldName][]*files.File{}
	}
	for _, f := range opened {
		at := heldName{namespace, f.Name}
		h.files[at] = append(h.files[at], f)
	}
	c.watched += len(opened)
	c.s.metrics.watches.Add(float64(len(opened)))
	return nil
}

// giveBack releases each of the named files once.
func (c *conn) giveBack(namespace string, names []string) {
	if len(names) == 0 {
		return
	}
	c.mu.Lock()
	var gone []*files.File
	for _, name := range names {
		at := heldName{namespace, name}
		of := c.held.files[at]
		switch len(of) {
		case 0:
			continue
		case 1:
			delete(c.held.files, at)
		default:
			c.held.files[at] = of[1:]
		}
		gone = append(gone, of[0])
	}
	c.unhold(gone)
}

// giveAllBack releases all files of the connection, and makes hold refuse further files.
func (c *conn) giveAllBack() {
	c.mu.Lock()
	var gone []*files.File
	for _, of := range c.held.files {
		gone = append(gone, of...)
	}
	c.held.files, c.held.over = nil, true
	c.unhold(gone)
}

// unhold releases files that were removed from the held files. The caller holds c.mu, and unhold
// unlocks it.
func (c *conn) unhold(gone []*files.File) {
	c.watched -= len(gone)
	c.mu.Unlock()
	releaseAll(gone)
	c.s.metrics.watches.Sub(float64(len(gone)))
	c.account.Unwatch(len(gone))
}

// flight tracks descriptors that were sent with answers of finished requests. No request waits
// until the client reads them. Therefore the server checks repeatedly whether they were read, and
// ends the connection if they are not read in time.
type flight struct {
	n     int
	since time.Time
}

// sendBeside attaches descriptors to the message that is sent next. The caller holds c.mu.
func (c *conn) sendBeside(files []*os.File) {
	if c.dead {
		closeAll(files)
		c.s.flying.give(c.s.config.Authority.Subject(c.peer), len(files))
		return
	}
	c.passing = append(c.passing, passing{c.gone + uint64(c.unsent), files})
	if c.flight.n == 0 {
		c.flight.since = time.Now()
		time.AfterFunc(readEvery, c.look)
	}
	c.flight.n += len(files)
}

// look checks repeatedly whether the client has read the descriptors.
func (c *conn) look() {
	read := c.wasRead()
	c.mu.Lock()
	n := c.flight.n
	if !read && time.Since(c.flight.since) > c.s.limits.DescriptorTime {
		c.die("descriptors unread")
	}
	again := !read && !c.dead
	if !again {
		c.flight.n = 0
	}
	c.mu.Unlock()
	if again {
		time.AfterFunc(readEvery, c.look)
		return
	}
	c.s.flying.give(c.s.config.Authority.Subject(c.peer), n)
}
