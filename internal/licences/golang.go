package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/licensecheck"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// own is the prefix of the tree's modules.
const own = "github.com/netcraq/netcraq"

// enough is the percentage of a licence file that licensecheck must recognize.
const enough = 75

// licenceFile matches the names of files with a code licence. noLicenceFile matches exceptions. For
// example, LICENSE.docs is a manual's licence, and LICENSE-3rdparty.csv lists dependencies, which
// go.mod names, too.
var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[sc]e|copying)([-._].*)?$`)

var noLicenceFile = regexp.MustCompile(`(?i)\.(go|docs|csv)$`)

// moduleCache reads modules from Go's module cache.
type moduleCache struct {
	folder   string
	verdicts map[module.Version]string // the problem of each module's licence; "" if there is none
	lacking  map[module.Version]bool   // modules that are not in the cache
}

func newModuleCache() (*moduleCache, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("asking Go where its module cache is: %w", err)
	}
	return &moduleCache{folder: strings.TrimSpace(string(out)), verdicts: map[module.Version]string{},
		lacking: map[module.Version]bool{}}, nil
}

// check returns the licence problems of the modules that a go.mod requires. A go.mod lists every
// module that provides a package to the main module (Go modules reference, graph pruning). Go puts
// a module into the cache when it builds a package of the module, so modules for other platforms
// may be missing there.
func (c *moduleCache) check(file string) (findings []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	mod, err := modfile.Parse(file, text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range mod.Require {
		m := replaced(mod, r.Mod)
		if m.Path == own || strings.HasPrefix(m.Path, own+"/") || modfile.IsDirectoryPath(m.Path) {
			continue
		}
		verdict, known := c.verdicts[m]
		if !known {
			verdict, err = judge(m, c.path(m))
			if errors.Is(err, os.ErrNotExist) {
				c.lacking[m] = true
				continue
			}
			if err != nil {
				return nil, err
			}
			c.verdicts[m] = verdict
		}
		if verdict != "" {
			findings = append(findings, m.String()+": "+verdict)
		}
	}
	return findings, nil
}

// path returns a module's folder in the cache.
func (c *moduleCache) path(m module.Version) string {
	path, err := module.EscapePath(m.Path)
	if err != nil {
		path = m.Path
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		version = m.Version
	}
	return filepath.Join(c.folder, path+"@"+version)
}

// replaced returns the module that Go uses instead of m, or m itself.
func replaced(mod *modfile.File, m module.Version) module.Version {
	for _, r := range mod.Replace {
		if r.Old.Path == m.Path && (r.Old.Version == "" || r.Old.Version == m.Version) {
			return r.New
		}
	}
	return m
}

// judge returns the problem of the licence of the module in folder, or "" if the licence is
// accepted.
func judge(m module.Version, folder string) (string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	none := true
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || noLicenceFile.MatchString(e.Name()) {
			continue
		}
		none = false
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return "", err
		}
		if wrong := judgeText(text); wrong != "" {
			return e.Name() + ": " + wrong, nil
		}
	}
	if none {
		return "it has no licence file", nil
	}
	return "", nil
}

// judgeText returns the problem of a licence's text. A file may contain several licences, for parts
// of a module. All of them must be accepted.
func judgeText(text []byte) string {
	cover := licensecheck.Scan(text)
	for _, match := range cover.Match {
		if wrong := refuse(match.ID); wrong != "" {
			return wrong
		}
	}
	if cover.Percent < enough {
		return fmt.Sprintf("the text is no known licence (%.0f %% of it is)", cover.Percent)
	}
	return ""
}

// refuse returns the message for a licence that is not accepted.
func refuse(licence string) string {
	if accepted[licence] {
		return ""
	}
	return "the licence " + licence + " is not accepted"
}
