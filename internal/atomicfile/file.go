// Package atomicfile replaces files so that a crash, of the process or of the machine, leaves the
// old one or the new one, and that it is the new one when Replace has returned.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// syncDir forces a directory's entries to the disk. It is a variable for the test.
var syncDir = func(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Replace puts what write writes into the place of the file at path, whose permissions are mode
// then. After an error that was made before the new file was in its place, the old one is there as
// it was; after one that concerns the directory it may be either. Readers see one of the two as a
// whole. The temporary file alongside it has a name that begins with a dot.
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
	// Without this the name can be the old file's again after a power cut, although the new one's
	// content is on the disk.
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("forcing the directory to the disk: %w", err)
	}
	return nil
}
