package server

import (
	"context"
	"os"
	"time"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/streams/files"
)

// makeFile creates a file. The request holds the file until it ends. Afterwards the file exists as
// long as others hold it. The caller needs the right to create keys.
func makeFile(ctx context.Context, k *call, d *nodeapi.MakeFileData) (any, error) {
	if err := k.mayBePassed(); err != nil {
		return nil, err
	}
	b, ns, err := k.streamsIn(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	if err := k.may(ctx, authority.Create, ns); err != nil {
		return nil, err
	}
	f, err := b.Files().Make(ns, d.Bytes, d.Rewritable)
	if err != nil {
		return nil, err
	}
	return nil, k.lend(ctx, f, 2, f.Draft)
}

func sealFile(ctx context.Context, k *call, d *nodeapi.SealFileData) (any, error) {
	b, ns, err := k.streamsIn(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	if err := checkFileKey(d.Key); err != nil {
		return nil, err
	}
	return struct{}{}, b.Files().Seal(ns, d.File, d.Key)
}

func checkFileKey(key string) error {
	if len(key) > nodeapi.MaxKeyName || !utf8.ValidString(key) {
		return rpc.Invalid("a file's key is UTF-8, of at most %d bytes", nodeapi.MaxKeyName)
	}
	return nil
}

// openFile lets a client map a file. The request holds the file until it ends. If no file has the
// key, the request stays open while its caller intends to create the file.
func openFile(ctx context.Context, k *call, d *nodeapi.OpenFileData) (any, error) {
	if err := k.mayBePassed(); err != nil {
		return nil, err
	}
	b, ns, err := k.streamsIn(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	if (d.File == "") == (d.Key == "") {
		return nil, rpc.Invalid("give file or key")
	}
	if err := checkFileKey(d.Key); err != nil {
		return nil, err
	}
	if d.File != "" {
		f, err := b.Files().Hold(ns, d.File)
		if err != nil {
			return nil, err
		}
		if f.Rewritable && !d.Rewritable {
			f.Release()
			return nil, errRewritable()
		}
		return nil, k.lend(ctx, f, 1, f.Reader)
	}
	f, giveUp, err := b.Files().Find(ctx, ns, d.Key)
	if err != nil {
		return nil, err
	}
	if f != nil {
		return nil, k.lend(ctx, f, 1, f.Reader)
	}
	defer giveUp()
	if !k.more(ctx, &nodeapi.FileAnswer{}) {
		return nil, ctx.Err()
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// rewriteFile waits until no record refers to at least one of the given files.
func rewriteFile(ctx context.Context, k *call, d *nodeapi.RewriteFileData) (any, error) {
	b, ns, err := k.streamsIn(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	if len(d.Files) < 1 || len(d.Files) > nodeapi.MaxAskedFiles {
		return nil, rpc.Invalid("%d files; ask for 1 to %d", len(d.Files), nodeapi.MaxAskedFiles)
	}
	if d.WaitMillis < 0 || d.WaitMillis > nodeapi.MaxTimeoutMillis {
		return nil, rpc.Invalid("waitMs is 0 to %d", nodeapi.MaxTimeoutMillis)
	}
	free, err := b.Files().Free(ctx, ns, d.Files, time.Duration(d.WaitMillis)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	return &nodeapi.RewriteFileAnswer{Files: free}, nil
}

// lend sends descriptors of a held file to the client, and releases the file when the request ends.
func (k *call) lend(ctx context.Context, f *files.File, n int, open func() ([]*os.File, error)) error {
	defer f.Release()
	answer := &nodeapi.FileAnswer{Descriptors: n, File: f.Name, Bytes: f.Bytes, Rewritable: f.Rewritable}
	if err := k.pass(ctx, answer, n, open); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// filesOf holds the files to which records refer, and returns them for each record. The files must
// be in the namespace of the stream, so that readers of the stream may map them. It returns nil if
// no record refers to a file.
func (k *call) filesOf(s *broker.Stream, records []nodeapi.RecordData) (pins [][]*files.File, err error) {
	defer func() {
		if err != nil {
			for _, of := range pins {
				letGo(of)
			}
		}
	}()
	for i, r := range records {
		if len(r.Files) == 0 {
			continue
		}
		if len(r.Files) > nodeapi.MaxRecordFiles {
			return pins, rpc.Invalid("a record refers to %d files, of at most %d", len(r.Files), nodeapi.MaxRecordFiles)
		}
		if pins == nil {
			pins = make([][]*files.File, len(records))
		}
		if pins[i], err = k.c.s.streams.Files().HoldAll(s.Namespace, r.Files); err != nil {
			return pins, err
		}
	}
	return pins, nil
}

func letGo(held []*files.File) {
	for _, f := range held {
		f.ReleaseRecord()
	}
}
