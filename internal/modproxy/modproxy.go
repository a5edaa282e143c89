// Package modproxy writes Go modules into a folder in the layout of a module proxy
// (https://go.dev/ref/mod#goproxy-protocol).
package modproxy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
)

// Write writes a version of a module below folder. It writes the module's go.mod, its zip unless
// that is nil, and the version's time, which may be zero. This version becomes the module's only
// one in the folder.
func Write(folder string, m module.Version, date time.Time, mod, zip []byte) error {
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time `json:",omitzero"`
	}{m.Version, date})
	if err != nil {
		return err
	}
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	there := filepath.Join(folder, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(there, 0o755); err != nil {
		return err
	}
	files := map[string][]byte{"list": []byte(m.Version + "\n"), m.Version + ".info": info, m.Version + ".mod": mod}
	if zip != nil {
		files[m.Version+".zip"] = zip
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(there, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
