// Package jetstream is a source of streams. It fills streams from NATS JetStream, and appends
// records of producers to JetStream. The NATS server runs in this process, or is the operator's
// cluster.
//
// A file of the operator of the node's server (Kind's --jetstream) lists the JetStream streams that
// each namespace may use.
package jetstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/sidecar"
	"github.com/netcraq/netcraq/streams/source"
)

// file is the content of the operator's file. docs/streams.md explains it.
type file struct {
	// The following settings are for a NATS server in this process.
	Dir       string
	MaxBytes  int64  `yaml:"maxBytes"`
	Listen    string // address at which clients can connect; empty means none
	Producers map[string]struct {
		PasswordFile string `yaml:"passwordFile"`
		Publish      []string
	}
	Streams map[string]struct {
		Subjects []string
		MaxBytes int64         `yaml:"maxBytes"`
		MaxAge   time.Duration `yaml:"maxAge"`
	}
	// The following settings are for a cluster of the operator.
	CACert string `yaml:"cacert"`
	Creds  string
	// Namespaces lists the JetStream streams that each namespace may use. The name "*" stands for
	// all namespaces.
	Namespaces map[string][]string
	// Append lists the subjects to which programs of each namespace may append through the node
	// API.
	Append map[string][]string
}

// Kind returns this kind of source for a sidecar.
func Kind() sidecar.Kind {
	path, urls := "", []string(nil)
	return sidecar.Kind{Name: "jetstream",
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&path, "jetstream", "", "`FILE` (YAML) with the NATS JetStream streams that each namespace may use, and the settings of the NATS server in this process (docs/streams.md; default: none)")
			f.StringSliceVar(&urls, "nats", nil, "`URLS` of a NATS cluster with JetStream (default: a server in this process)")
		},
		Open: func(ctx context.Context, log *slog.Logger) (source.Maker, func(), error) {
			if path == "" {
				if len(urls) > 0 {
					return nil, nil, errors.New("--nats is for --jetstream: give it too")
				}
				return nil, nil, nil
			}
			f, err := read(path)
			if err == nil {
				err = f.check(len(urls) > 0)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("--jetstream %s: %w", path, err)
			}
			o := open(f, urls, log)
			return o.Make, o.close, nil
		}}
}

const maxFile = 1 << 20

// readSafely reads a file. It returns an error if users other than the owner could write to the
// file.
func readSafely(path string, forbidden os.FileMode) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&forbidden != 0 {
		return nil, fmt.Errorf("%s: others than its owner may do too much with it (%v)", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: it has more than %d bytes", path, maxFile)
	}
	return text, err
}

// secret reads a password from a file. It returns an error if other users could read the file.
func secret(path string) (string, error) {
	text, err := readSafely(path, 0o077)
	if err != nil {
		return "", err
	}
	if s := strings.TrimSpace(string(text)); s != "" {
		return s, nil
	}
	return "", fmt.Errorf("%s: it is empty", path)
}

func read(path string) (*file, error) {
	text, err := readSafely(path, 0o022)
	if err != nil {
		return nil, err
	}
	var f file
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return &f, d.Decode(&f)
}

// check returns an error if the settings in a file are not valid. It also fills in defaults.
func (f *file) check(cluster bool) error {
	for what, all := range map[string]map[string][]string{"namespaces": f.Namespaces, "append": f.Append} {
		for ns := range all {
			if err := authority.CheckNamespace(ns); err != nil && ns != "*" {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
	}
	for ns, all := range f.Append {
		for _, subject := range all {
			if !server.IsValidSubject(subject) {
				return fmt.Errorf("append: %s: %q is no subject", ns, subject)
			}
		}
	}
	if cluster {
		if f.Dir != "" || f.Listen != "" || len(f.Producers)+len(f.Streams) > 0 {
			return errors.New("dir, listen, producers and streams are of a server in this process, not of a cluster")
		}
		return nil
	}
	f.MaxBytes = cmp.Or(f.MaxBytes, 1<<30)
	switch {
	case f.Dir == "":
		return errors.New("give dir, where the server in this process keeps what is published, or --nats")
	case f.CACert != "" || f.Creds != "":
		return errors.New("cacert and creds are of a cluster: give --nats")
	case (f.Listen == "") != (len(f.Producers) == 0):
		return errors.New("give listen and producers, or neither: nobody may connect who is not named")
	}
	for name, p := range f.Producers {
		if len(p.Publish) == 0 || name == own {
			return fmt.Errorf("producers: %s: list the subjects that it may publish, and choose another name than %s", name, own)
		}
		if _, err := secret(p.PasswordFile); err != nil {
			return fmt.Errorf("producers: %s: %w", name, err)
		}
	}
	for name, s := range f.Streams {
		if len(s.Subjects) == 0 {
			return fmt.Errorf("streams: %s: it has no subjects", name)
		}
	}
	return nil
}

// always lists the options of every connection to NATS. Producers may subscribe to subjects below
// _INBOX. The inbox prefix prevents producers from receiving messages to this process.
var always = []nats.Option{nats.Name("netcraq"), nats.MaxReconnects(-1), nats.CustomInboxPrefix("_NETCRAQ"),
	nats.ReconnectWait(500 * time.Millisecond), nats.RetryOnFailedConnect(true)}

// origin is a JetStream from which streams of the node API are filled.
type origin struct {
	may  map[string][]string // JetStream streams that each namespace may use
	to   map[string][]string // subjects to which each namespace may append
	conn atomic.Pointer[connection]
	stop context.CancelFunc
	work sync.WaitGroup
	// keeping has an element for each append under way. Its capacity limits their number.
	keeping chan struct{}
	end     func() // called when all work has ended
}

type connection struct {
	nc *nats.Conn
	js js.JetStream
}

// open begins to connect to JetStream.
func open(f *file, urls []string, log *slog.Logger) *origin {
	ctx, stop := context.WithCancel(context.Background())
	o := &origin{may: f.Namespaces, to: f.Append, keeping: make(chan struct{}, underWay), stop: stop, end: func() {}}
	o.work.Go(func() {
		for ctx.Err() == nil {
			err := o.connect(ctx, f, urls, log)
			if err == nil || ctx.Err() != nil {
				return
			}
			log.Error("JetStream is not there", "error", err)
			select {
			case <-time.After(5 * time.Second):
			case <-ctx.Done():
			}
		}
	})
	return o
}

func (o *origin) connect(ctx context.Context, f *file, urls []string, log *slog.Logger) (err error) {
	var nc *nats.Conn
	end := func() { nc.Close() }
	if len(urls) == 0 {
		if nc, end, err = startOwn(ctx, f, log); err != nil {
			return err
		}
	} else {
		options := always
		if f.CACert != "" {
			options = append(slices.Clip(options), nats.RootCAs(f.CACert))
		}
		if f.Creds != "" {
			options = append(slices.Clip(options), nats.UserCredentials(f.Creds))
		}
		if nc, err = nats.Connect(strings.Join(urls, ","), options...); err != nil {
			return err
		}
	}
	c := &connection{nc: nc}
	if c.js, err = js.New(nc); err == nil {
		err = c.make(ctx, f)
	}
	if err != nil {
		end()
		return err
	}
	o.end = end
	o.conn.Store(c)
	return nil
}

// make creates or updates the streams that the operator wants, if the server runs in this process.
func (c *connection) make(ctx context.Context, f *file) error {
	for name, s := range f.Streams {
		ctx, cancel := context.WithTimeout(ctx, patience)
		_, err := c.js.CreateOrUpdateStream(ctx, js.StreamConfig{Name: name, Subjects: s.Subjects, MaxBytes: s.MaxBytes,
			MaxAge: s.MaxAge, Storage: js.FileStorage, Discard: js.DiscardOld})
		cancel()
		if err != nil {
			return fmt.Errorf("the stream %s: %w", name, err)
		}
	}
	return nil
}

// close ends the connection. If the server runs in this process, close also stops the server.
func (o *origin) close() {
	o.stop()
	o.work.Wait()
	o.end()
}

// Make makes a source. It is a source.Maker.
func (o *origin) Make(namespace string, c nodeapi.StreamSource) (source.Source, error) {
	if c.JetStream == nil {
		return nil, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", "source is not jetstream")
	}
	for _, ns := range []string{namespace, "*"} {
		if slices.Contains(o.may[ns], c.JetStream.Stream) {
			return &messages{o: o, stream: c.JetStream.Stream, subject: c.JetStream.Subject, namespace: namespace,
				may: slices.Concat(o.to[namespace], o.to["*"])}, nil
		}
	}
	return nil, nodeapi.Errorf(nodeapi.CodePermissionDenied, "ask the operator of the node's server for it",
		"streams of the namespace %s may not be filled by JetStream's %.80q", namespace, c.JetStream.Stream)
}
