// Package atomicfile replaces files so that a crash of the process or of the machine leaves either
// the old or the new file. After Replace has returned, a crash leaves the new file.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// syncDir syncs a directory's entries to the disk. It is a variable, so that the test can replace
// it.
var syncDir = func(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Replace replaces the file at path by the output of write, with permissions mode. If Replace fails
// before the new file is in place, the old file is unchanged. If syncing the directory fails, a
// crash may leave either file. Readers always see one of the two files, complete. The temporary
// file is in the same directory, and its name begins with a dot.
func Replace(path string, mode os.FileMode, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	// Without this sync, the name may refer to the old file again after a power failure, although
	// the new file's content is on the disk.
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("forcing the directory to the disk: %w", err)
	}
	return nil
}
