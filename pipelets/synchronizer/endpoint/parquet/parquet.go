// Package parquet is a destination and a source of files of Apache Parquet in a folder.
//
// A destination's files are numbered, one for each batch with rows, in a folder of the pipelet
// below the given one (so DuckDB reads all of them as PATH/**/*.parquet). A file is written under
// another name, synced to the disk, and only then renamed to its number, so a reader never sees a
// partial file. The source's position is in the file's footer, so rows and position cannot diverge.
// A worker chooses the next number under a lock of the folder (flock(2)), which ends with its
// process: of two workers one writes, and the other one gets a Conflict.
//
// If the flow returned no rows for many batches, there would be endless files without rows. So a
// file without rows does not use up its number: the next batch replaces it.
package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/file"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

const (
	suffix    = ".parquet"
	digits    = 20
	temporary = ".writing-" // prefix of an unfinished file's name
	lockName  = ".lock"
	// footerKey is the key of the destination's record in the footer.
	footerKey = "netcraq.pipelet"
	// maxFooter is the maximum size of that record, in bytes.
	maxFooter = 64 << 10
)

// footer is the record in a file's footer. It describes the file and those before it.
type footer struct {
	// Lake identifies the folder's lifetime: a random name from its first file on.
	Lake  string            `json:"lake"`
	State exactlyonce.State `json:"state"`
}

// schema is the schema of the files. The column value has a value that is text, the column bytes
// any other value. A row that deletes its key has neither.
var schema = arrow.NewSchema([]arrow.Field{
	{Name: "key", Type: arrow.BinaryTypes.String},
	{Name: "value", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "bytes", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "deleted", Type: arrow.FixedWidthTypes.Boolean},
}, nil)

// Check reports errors in a specification.
func Check(spec pipeletapi.Parquet) error {
	if !filepath.IsAbs(spec.Path) || filepath.Clean(spec.Path) == "/" {
		return fmt.Errorf("parquet.path: %q is no folder's path from / on", spec.Path)
	}
	return nil
}

// Overlap reports whether a source's folder contains a destination's files.
func Overlap(src, dst pipeletapi.Parquet) bool {
	return strings.HasPrefix(filepath.Clean(src.Path)+"/", filepath.Clean(dst.Path)+"/")
}

// numbered is the name of the file with a number.
func numbered(folder string, n uint64) string {
	return filepath.Join(folder, fmt.Sprintf("%0*d%s", digits, n, suffix))
}

// span returns the lowest and the highest number of a folder's files; 0 if there are none.
func span(folder string) (low, high uint64, err error) {
	all, err := os.ReadDir(folder)
	if err != nil {
		return 0, 0, err
	}
	for _, e := range all {
		text, ok := strings.CutSuffix(e.Name(), suffix)
		n, err := strconv.ParseUint(text, 10, 64)
		if !ok || err != nil || n == 0 || len(text) != digits {
			continue
		}
		if low == 0 || n < low {
			low = n
		}
		high = max(high, n)
	}
	return low, high, nil
}

// footerOf reads the record in a file's footer. A file of another program has none.
func footerOf(r *file.Reader) (f footer, err error) {
	text := r.MetaData().KeyValueMetadata().FindValue(footerKey)
	if text == nil {
		return f, nil
	}
	if len(*text) > maxFooter {
		return f, fmt.Errorf("its footer has %d bytes under %s", len(*text), footerKey)
	}
	return f, json.Unmarshal([]byte(*text), &f)
}

// open opens a file. It returns an error if arrow-go panics, because then the file is malformed.
func open(name string) (f *os.File, r *file.Reader, err error) {
	if f, err = os.Open(name); err != nil {
		return nil, nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = exactlyonce.Errorf(exactlyonce.Refused, "%s cannot be read as Parquet: %v", name, p)
		}
		if err != nil {
			f.Close()
		}
	}()
	r, err = file.NewParquetReader(f)
	if err != nil {
		return nil, nil, exactlyonce.Errorf(exactlyonce.Refused, "%s cannot be read as Parquet: %w", name, err)
	}
	return f, r, nil
}

// fault classifies an error of the file system. Refused means that a person must fix something.
func fault(err error, what string) error {
	if err == nil {
		return nil
	}
	if _, known := errors.AsType[*exactlyonce.Fault](err); known {
		return err
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return exactlyonce.Errorf(exactlyonce.Refused, "%s: the disk is full: %w", what, err)
	case errors.Is(err, syscall.EDQUOT):
		return exactlyonce.Errorf(exactlyonce.Refused, "%s: the disk quota is used up: %w", what, err)
	case errors.Is(err, syscall.EFBIG):
		return exactlyonce.Errorf(exactlyonce.TooLarge, "%s: %w", what, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS),
		errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EISDIR):
		return exactlyonce.Errorf(exactlyonce.Refused, "%s: %w", what, err)
	}
	return exactlyonce.Errorf(exactlyonce.Temporary, "%s: %w", what, err)
}
