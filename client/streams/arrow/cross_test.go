package streamsarrow

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// pythonVariable is the environment variable with the path of a Python interpreter that has
// pyarrow. The target test-arrow-go of make sets it.
const pythonVariable = "NETCRAQ_ARROW_PYTHON"

// TestPython checks that this package reads batches that the Python library has written, and that
// Python reads batches that this package has written. Values and schemas must be equal. The batches
// are in records and in files. The batches have all supported types, slices, and 60 random
// combinations of types and values. Both sides compare the batches with files in Arrow's own
// format. The variable NETCRAQ_ARROW_SEED sets the random seed.
func TestPython(t *testing.T) {
	python := os.Getenv(pythonVariable)
	if python == "" {
		t.Skipf("$%s is not set: make test-arrow-go sets it", pythonVariable)
	}
	seed := os.Getenv("NETCRAQ_ARROW_SEED")
	if seed == "" {
		seed = strconv.FormatInt(time.Now().Unix()%1_000_000, 10)
	}
	t.Logf("seed %s", seed)
	for _, known := range []bool{true, false} { // whether arrow-go knows the extension types
		t.Run(map[bool]string{true: "extensions", false: "storage"}[known], func(t *testing.T) {
			if !known {
				name := extensions.NewUUIDType().ExtensionName()
				if err := arrow.UnregisterExtensionType(name); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = arrow.RegisterExtensionType(extensions.NewUUIDType()) }()
			}
			cross(t, python, seed)
		})
	}
}

func cross(t *testing.T, python, seed string) {
	w := newWorld(t)
	c := w.client()
	for _, name := range []string{"py-inline", "py-files", "again-inline", "again-files", "mixed", "go-inline", "go-files"} {
		w.stream(c, name, nodeapi.StreamConfig{Objects: 64, ObjectBytes: 1 << 18, Volatile: true})
	}
	place := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(soon(t), python, append([]string{"testdata/cross.py"}, args...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH=../../python")
		var errors strings.Builder
		cmd.Stderr = &errors
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, errors.String())
		}
		return strings.TrimSpace(string(out))
	}
	written, err := strconv.Atoi(run("write", w.socket, place, seed))
	if err != nil || written < 60 {
		t.Fatal(written, err)
	}
	files := w.files()
	inline, shared := w.read("py-inline", files), w.read("py-files", files)
	again := &Writer{Client: c, Stream: "again-inline"}
	against := &Writer{Client: c, Stream: "again-files", Files: files, Inline: -1}
	mixed := &Writer{Client: c, Stream: "mixed", Files: files, Inline: 1 << 10}
	for i := range written {
		want, schema := read(t, filepath.Join(place, fmt.Sprintf("py-%d.arrow", i)))
		for _, r := range []*Reader{inline, shared} {
			item := next(t, r)
			if same(t, item.Batch, want); !item.Batch.Schema().Equal(schema) || t.Failed() {
				t.Fatalf("batch %d of Python's: %s", i, item.Batch.Schema())
			}
		}
		put(t, again, inline.last)
		copied := files.Copied()
		put(t, against, shared.last)
		if got := files.Copied() - copied; got > 0 {
			t.Errorf("batch %d: %d bytes were copied", i, got)
		}
		put(t, mixed, inline.last)
	}
	for i, b := range sliced(t) {
		f, err := os.Create(filepath.Join(place, fmt.Sprintf("go-%d.arrow", i)))
		if err != nil {
			t.Fatal(err)
		}
		out := ipc.NewWriter(f, ipc.WithSchema(b.Schema()))
		if err := out.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		f.Close()
		put(t, &Writer{Client: c, Stream: "go-inline"}, b)
		put(t, &Writer{Client: c, Stream: "go-files", Files: files, Inline: -1}, b)
	}
	got := run("read", w.socket, place, "again-inline=py", "again-files=py", "mixed=py", "go-inline=go", "go-files=go")
	ours := len(sliced(t))
	if want := fmt.Sprintf("again-inline %d\nagain-files %d\nmixed %d\ngo-inline %d\ngo-files %d", written, written, written,
		ours, ours); got != want {
		t.Errorf("Python has read %q, not %q", got, want)
	}
}

// read reads the batch of a file in Arrow's own format.
func read(t *testing.T, path string) (arrow.RecordBatch, *arrow.Schema) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := ipc.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Next() {
		t.Fatal(path, r.Err())
	}
	b := r.RecordBatch()
	return array.NewRecordBatch(b.Schema(), b.Columns(), b.NumRows()), r.Schema()
}
