package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	was := syncDir
	t.Cleanup(func() { syncDir = was })
	var synced []string
	syncDir = func(d string) error {
		b, err := os.ReadFile(path) // the file already has its new content
		synced = append(synced, d+" "+string(b))
		return errors.Join(err, was(d))
	}
	for _, s := range []string{"one", "two"} {
		if err := Replace(path, 0o640, text(s)); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil || string(b) != s {
			t.Errorf("%q, %v", b, err)
		}
	}
	if want := []string{dir + " one", dir + " two"}; !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o640 {
		t.Error(i.Mode(), err)
	}
	broken := errors.New("the disk is full")
	if err := Replace(path, 0o600, func(w io.Writer) error {
		return errors.Join(text("thr")(w), broken)
	}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "two" {
		t.Errorf("after a failure %q, %v", b, err)
	}
	syncDir = func(string) error { return broken }
	if err := Replace(path, 0o600, text("four")); !errors.Is(err, broken) || !strings.Contains(err.Error(), "directory") {
		t.Errorf("the directory was not forced to the disk: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*.*")); len(left) != 0 || err != nil {
		t.Error(left, err)
	}
	if err := Replace(filepath.Join(dir, "nowhere", "x"), 0o600, text("")); err == nil {
		t.Error("a file was made where there is no directory")
	}
}
