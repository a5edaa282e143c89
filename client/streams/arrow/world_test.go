package streamsarrow

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
)

const patience = 60 * time.Second

// role is an environment variable. The test starts its own program again as another process, and
// the variable tells this process what to do.
const role = "NETCRAQ_STREAMS_ARROW_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	go func() { // this process ends when the test ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

func serve(dir string) error {
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	return server.New(server.Config{Store: store.NewMemory(1024), Name: "test", Node: "here", Namespace: "default",
		Streams: &broker.Options{Dir: filepath.Join(dir, "streams")}}).Serve(l)
}

// world is a node's server. It runs in its own process, so that all memory that is mapped in this
// process belongs to clients.
type world struct {
	t      testing.TB
	socket string
	stop   func()
}

func newWorld(t testing.TB) *world {
	dir := t.TempDir()
	w := &world{t: t, socket: filepath.Join(dir, "s")}
	w.start(dir)
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *world) start(dir string) {
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), role+"=server")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.stop = func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() }
	poll.Until(w.t, patience, "the server to listen", func() bool {
		nc, err := net.Dial("unix", w.socket)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) client() *node.Client {
	w.t.Helper()
	c, err := node.Connect(soon(w.t), node.Config{Socket: w.socket, Timeout: patience})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ctx)
	})
	return c
}

func (w *world) files() *Files {
	f := NewFiles(FilesConfig{Socket: w.socket})
	w.t.Cleanup(f.Close)
	return f
}

func (w *world) stream(c *node.Client, name string, config nodeapi.StreamConfig) {
	w.t.Helper()
	if _, err := c.OpenStream(soon(w.t), name, &config); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string, files *Files) *Reader {
	w.t.Helper()
	r, err := Open(soon(w.t), Config{Config: streams.Config{Socket: w.socket, Stream: name}, Files: files})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(r.Close)
	return r
}

func next(t testing.TB, r *Reader) *Item {
	t.Helper()
	item, err := r.Next(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return item
}

func put(t testing.TB, w *Writer, b arrow.RecordBatch) uint64 {
	t.Helper()
	offset, err := w.Append(soon(t), b)
	if err != nil {
		t.Fatal(err)
	}
	return offset
}

// all returns a batch that has a column of each kind.
func all(t testing.TB) arrow.RecordBatch {
	t.Helper()
	f := func(name string, of arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: of, Nullable: true}
	}
	metadata := arrow.NewMetadata([]string{"of"}, []string{"a test"})
	schema := arrow.NewSchema([]arrow.Field{
		f("integers", arrow.PrimitiveTypes.Int64),
		f("small", arrow.PrimitiveTypes.Uint8),
		f("floats", arrow.PrimitiveTypes.Float64),
		f("strings", arrow.BinaryTypes.String),
		f("large", arrow.BinaryTypes.LargeString),
		f("binary", arrow.BinaryTypes.Binary),
		f("large binary", arrow.BinaryTypes.LargeBinary),
		f("bytes", &arrow.FixedSizeBinaryType{ByteWidth: 3}),
		f("dictionary", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}),
		f("lists", arrow.ListOf(arrow.PrimitiveTypes.Int32)),
		f("large lists", arrow.LargeListOf(arrow.BinaryTypes.String)),
		f("fixed", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int16)),
		f("maps", arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32)),
		f("structs", arrow.StructOf(f("x", arrow.PrimitiveTypes.Int64), f("y", arrow.ListOf(arrow.FixedWidthTypes.Boolean)))),
		f("nulls", arrow.Null),
		f("bits", arrow.FixedWidthTypes.Boolean),
		f("decimals", &arrow.Decimal128Type{Precision: 10, Scale: 2}),
		f("large decimals", &arrow.Decimal256Type{Precision: 50, Scale: 2}),
		f("dates", arrow.FixedWidthTypes.Date32),
		f("times", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}),
		f("of the day", arrow.FixedWidthTypes.Time64us),
		f("durations", arrow.FixedWidthTypes.Duration_ms),
	}, &metadata)
	const rows = `[
 {"integers": 1, "small": 2, "floats": 0.5, "strings": "x", "large": "a", "binary": "eHg=", "large binary": "eXk=", "bytes": "YWJj",
  "dictionary": "u", "lists": [1], "large lists": ["p", "q"], "fixed": [1, 2], "maps": [{"key": "a", "value": 1}],
  "structs": {"x": 1, "y": [true]}, "bits": true, "decimals": "1.50", "large decimals": "2.50", "dates": "2026-01-02",
  "times": "2026-01-02T03:04:05Z", "of the day": "03:04:05", "durations": "3ms"},
 {"integers": null, "strings": "yy", "dictionary": "v", "lists": null, "fixed": [3, 4], "maps": [],
  "structs": null, "bits": null, "decimals": "-7.25"},
 {"integers": -3, "small": 255, "strings": null, "large": "ccc", "dictionary": "u", "lists": [2, 3], "large lists": [],
  "maps": [{"key": "b", "value": null}, {"key": "c", "value": 4}], "structs": {"x": 3, "y": null}, "bits": false, "dates": "1969-12-31"}
]`
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sliced returns a batch, and slices of the batch.
func sliced(t testing.TB) []arrow.RecordBatch {
	b := all(t)
	return []arrow.RecordBatch{b, b.NewSlice(1, 3), b.NewSlice(1, 2), b.NewSlice(3, 3), b.NewSlice(0, 0)}
}

// same fails unless both batches have the same schema and values.
func same(t testing.TB, got, want arrow.RecordBatch) {
	t.Helper()
	if !got.Schema().Equal(want.Schema()) || !got.Schema().Metadata().Equal(want.Schema().Metadata()) {
		t.Errorf("the schema is %s, not %s", got.Schema(), want.Schema())
	}
	if !array.RecordEqual(got, want) {
		t.Errorf("it is %v, not %v", got, want)
	}
}

// numbers returns a batch with one column of numbers.
func numbers(name string, values ...int64) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(values, nil)
	column := b.NewArray()
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: name, Type: arrow.PrimitiveTypes.Int64}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{column}, int64(len(values)))
}

// These are the names of the kinds of mapped files.
const (
	ofSegment = "netcraq-stream"
	ofFile    = "netcraq-file"
)

// mapped returns the addresses at which this process maps files of a kind.
func mapped(t testing.TB, kind string) (places [][2]uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, kind) {
			continue
		}
		begin, end, _ := strings.Cut(strings.Fields(line)[0], "-")
		a, _ := strconv.ParseUint(begin, 16, 64)
		z, _ := strconv.ParseUint(end, 16, 64)
		places = append(places, [2]uint64{a, z})
	}
	return places
}

// noneMapped fails if this process maps a file of a kind.
func noneMapped(t testing.TB, kind string) {
	t.Helper()
	if places := mapped(t, kind); len(places) != 0 {
		t.Errorf("files are mapped at %x", places)
	}
}

// inside reports whether all of a batch's buffers are in files of a kind.
func inside(t testing.TB, b arrow.RecordBatch, kind string) bool {
	t.Helper()
	places := mapped(t, kind)
	var buffers [][]byte
	for _, c := range b.Columns() {
		buffers = appendBuffers(buffers, c.Data())
	}
	if len(buffers) == 0 {
		t.Error("it has no buffers")
	}
	for _, buffer := range buffers {
		at, in := uint64(address(buffer)), false
		for _, p := range places {
			in = in || p[0] <= at && at+uint64(len(buffer)) <= p[1]
		}
		if !in {
			return false
		}
	}
	return true
}

// oneColumn returns a batch with one column.
func oneColumn(f arrow.Field, c arrow.Array) arrow.RecordBatch {
	return array.NewRecordBatch(arrow.NewSchema([]arrow.Field{f}, nil), []arrow.Array{c}, int64(c.Len()))
}
