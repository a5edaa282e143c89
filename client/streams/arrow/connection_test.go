package streamsarrow

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestHostileServer checks the client against servers that send answers without a request, answers
// with file descriptors, or endless answers. The client must close the connection and leave no
// descriptor open.
func TestHostileServer(t *testing.T) {
	for name, send := range map[string]func(nc *net.UnixConn, fd int) error{
		"descriptors for nobody": func(nc *net.UnixConn, fd int) error {
			_, _, err := nc.WriteMsgUnix([]byte(`{"id":1000}`+"\n"), unix.UnixRights(fd, fd), nil)
			return err
		},
		"descriptors of what does not end": func(nc *net.UnixConn, fd int) error {
			_, _, err := nc.WriteMsgUnix([]byte(" "), unix.UnixRights(fd, fd), nil)
			return err
		},
		"an answer without an end": func(nc *net.UnixConn, _ int) error {
			_, err := nc.Write([]byte(strings.Repeat(" ", 4096)))
			return err
		},
		"more descriptors than come": func(nc *net.UnixConn, _ int) error {
			_, err := nc.Write([]byte(`{"id":1,"data":{"descriptors":2}}` + "\n"))
			return err
		},
		"no JSON": func(nc *net.UnixConn, _ int) error {
			_, err := nc.Write([]byte("HTTP/1.1 400 Bad Request\n"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			file, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			before := open(t)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				nc, err := l.Accept()
				if err != nil {
					return
				}
				defer nc.Close()
				var request struct{ ID uint64 }
				_ = json.NewDecoder(nc).Decode(&request)
				for range 1000 {
					if send(nc.(*net.UnixConn), int(file.Fd())) != nil {
						return
					}
				}
				_, _ = io.Copy(io.Discard, nc) // this reads until the client closes the connection
			}()
			files := NewFiles(FilesConfig{Socket: socket})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := files.Make(ctx, 1); node.CodeOf(err) != nodeapi.CodeUnavailable {
				t.Errorf("it is %v", err)
			}
			files.Close()
			<-ended
			poll.Until(t, patience, "its descriptors to be closed", func() bool { return open(t) <= before },
				func() string { return fmt.Sprintf("%d are open, and were %d", open(t), before) })
		})
	}
}

// open returns how many file descriptors of this process are open.
func open(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
