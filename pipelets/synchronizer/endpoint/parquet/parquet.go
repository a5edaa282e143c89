// Package parquet has a folder with files of Apache Parquet as a destination and as a source.
//
// A destination's files are numbered, one for each batch that has rows, in a folder of the
// pipelet's own below the given one (so DuckDB reads them all as PATH/**/*.parquet). A file is
// written under another name, synced to the disk, and only then gets its number, so a reader never
// sees a partial file. The source's position is in the file's footer, so rows and position cannot
// diverge. The next file's number is decided under a lock of the folder (flock(2)), which ends with
// the process that has it: of two workers one writes, and the other one gets an error about the
// conflict.
//
// If the flow left nothing of many batches, there would be endless files without rows. So a file
// without rows does not use up its number: the next batch replaces it.
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
	temporary = ".writing-" // what a file's name begins with until it is whole
	lockName  = ".lock"
	// footerKey is under which the footer has what the destination knows.
	footerKey = "netcraq.pipelet"
	// maxFooter bounds what is taken from a footer, in bytes.
	maxFooter = 64 << 10
)

// footer is what a file says about itself and of those before it.
type footer struct {
	// Lake names the folder's life: it is made up with its first file.
	Lake  string            `json:"lake"`
	State exactlyonce.State `json:"state"`
}

// schema is that of the files. A value that is text is in the column value, another one in bytes;
// a row that deletes its key has neither.
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

// Overlap says whether a source's folder contains a destination's files.
func Overlap(src, dst pipeletapi.Parquet) bool {
	return strings.HasPrefix(filepath.Clean(src.Path)+"/", filepath.Clean(dst.Path)+"/")
}

// numbered is the name of a file.
func numbered(folder string, n uint64) string {
	return filepath.Join(folder, fmt.Sprintf("%0*d%s", digits, n, suffix))
}

// span is the lowest and the highest number of a folder's files; 0 if there are none.
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

// footerOf is what a file's footer says. A file that somebody else wrote says nothing.
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

// open opens a file. What arrow-go panics at is an error: the file is not what it says.
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

// fault says what an error of the file system's means. What somebody has to put right is refused.
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
