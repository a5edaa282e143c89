package modproxy

import (
	"archive/zip"
	"bytes"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// Installable removes the replace directives from a module's go.mod, and repacks the module with
// the new go.mod. The directives matter only in a checkout. Programs that require the module ignore
// them, and go install refuses a command whose module has such directives.
func Installable(m module.Version, mod, packed []byte) (installable, repacked []byte, err error) {
	file, err := modfile.Parse("go.mod", mod, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range file.Replace {
		if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return nil, nil, err
		}
	}
	file.Cleanup()
	if mod, err = file.Format(); err != nil {
		return nil, nil, err
	}
	from, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	to := zip.NewWriter(&out)
	for _, f := range from.File {
		if f.Name != m.String()+"/go.mod" {
			if err := to.Copy(f); err != nil {
				return nil, nil, err
			}
			continue
		}
		w, err := to.Create(f.Name)
		if err != nil {
			return nil, nil, err
		}
		if _, err := w.Write(mod); err != nil {
			return nil, nil, err
		}
	}
	if err := to.Close(); err != nil {
		return nil, nil, err
	}
	return mod, out.Bytes(), nil
}
