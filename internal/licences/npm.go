package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkNPM returns the number of packages in a package.json's lock file, and their licence
// problems. The lock file contains the declared licence of each package.
func checkNPM(file string) (packages int, findings []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, nil, err
	}
	var wants struct{ Dependencies, DevDependencies, OptionalDependencies map[string]string }
	if err := json.Unmarshal(text, &wants); err != nil {
		return 0, nil, err
	}
	text, err = os.ReadFile(filepath.Join(filepath.Dir(file), "package-lock.json"))
	if errors.Is(err, os.ErrNotExist) {
		for _, all := range []map[string]string{wants.Dependencies, wants.DevDependencies, wants.OptionalDependencies} {
			for _, from := range all {
				// a file: package is a folder of the tree, whose own package.json is checked
				if !strings.HasPrefix(from, "file:") {
					return 0, []string{"it has dependencies, but no package-lock.json that names their licences"}, nil
				}
			}
		}
		return 0, findings, nil
	}
	if err != nil {
		return 0, nil, err
	}
	var lock struct {
		Packages map[string]struct{ Version, License string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return 0, nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(lock.Packages)) {
		if path == "" { // this entry is the project itself
			continue
		}
		packages++
		p := lock.Packages[path]
		if p.License == "" {
			findings = append(findings, path+"@"+p.Version+": it declares no licence")
		} else if wrong := refuse(p.License); wrong != "" {
			findings = append(findings, path+"@"+p.Version+": "+wrong)
		}
	}
	return packages, findings, nil
}
