// Package parquet implements a destination and a source for Apache Parquet files in a folder.
//
// A destination writes one numbered file for each batch with rows. The files of a pipelet are in a
// subfolder of the given folder, so DuckDB can read all files as PATH/**/*.parquet. The destination
// writes a file under another name, syncs it to the disk, and only then renames it to its number.
// So a reader never sees a partial file. The file's footer contains the source's position, so rows
// and position cannot diverge. A worker chooses the next number while it holds a lock on the folder
// (flock(2)), which ends with its process. So of two workers one writes, and the other gets a
// Conflict.
//
// If the flow returns no rows for a batch, the destination also writes a file, to store the
// position. The file of the next batch replaces it, so that such files do not accumulate.
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
	// footerKey is the key, in the file's footer, of the destination's metadata.
	footerKey = "netcraq.pipelet"
	// maxFooter is the maximum size of the destination's metadata in the footer, in bytes.
	maxFooter = 64 << 10
)

// footer is the destination's metadata in the footer of a file. It describes this file and all
// files before it.
type footer struct {
	// Lake identifies the lifetime of the folder. It is a random name that the first file
	// introduces.
	Lake  string            `json:"lake"`
	State exactlyonce.State `json:"state"`
}

// schema is the schema of the files. If a value is text, it is in the column value, and otherwise
// in the column bytes. A row that deletes its key has neither.
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

// numbered returns the path of the file with number n.
func numbered(folder string, n uint64) string {
	return filepath.Join(folder, fmt.Sprintf("%0*d%s", digits, n, suffix))
}

// span returns the lowest and the highest number of the files in a folder. Both are 0 if there are
// no files.
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

// footerOf reads the destination's metadata in the footer of a file. Files of other programs have
// no such metadata.
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

// open opens a file. If arrow-go panics, it returns an error, because the file must be malformed.
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

// fault converts an error of the file system to an exactlyonce.Fault. Refused means that a person
// must fix the cause.
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
