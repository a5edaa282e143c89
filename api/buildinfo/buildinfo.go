// Package buildinfo contains the version of NetCRAQ, and what the program was built from. The
// version is written only in the file VERSION. Packages of other languages, images and the chart
// repeat it, and make lint compares them.
package buildinfo

import (
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Metadata is the key of gRPC metadata in which a switch's P4Runtime server sends its version, in
// the header of the answers on StreamChannel.
const Metadata = "netcraq-version"

//go:embed VERSION
var version string

// Info is what a program knows about its build.
type Info struct {
	Version  string    `json:"version"`       // version of NetCRAQ (semver.org), such as 0.1.0 or 0.2.0-rc1
	Commit   string    `json:"commit"`        // commit of the source, in hex; "": not built in a checkout
	Modified bool      `json:"modified"`      // the source has changes that are not in Commit
	Date     time.Time `json:"date,omitzero"` // time of the commit, in UTC; zero: not known
	Go       string    `json:"go"`            // the toolchain's version, such as go1.26.0
	Platform string    `json:"platform"`      // such as linux/amd64
}

// Get returns what this program knows about its build.
func Get() Info {
	i := Info{Version: Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return i
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		case "vcs.time":
			date, _ := time.Parse(time.RFC3339, s.Value) // the zero time if it is in another format
			i.Date = date.UTC()
		}
	}
	return i
}

// Version returns the version of NetCRAQ.
func Version() string { return strings.TrimSpace(version) }

// String is one line: "0.1.0 (commit 0123456789ab of 2026-11-29, go1.26.0, linux/amd64)".
func (i Info) String() string {
	source := "commit unknown"
	if i.Commit != "" {
		source = "commit " + i.Short()
		if i.Modified {
			source += " with changes"
		}
		if !i.Date.IsZero() {
			source += " of " + i.Date.Format(time.DateOnly)
		}
	}
	return fmt.Sprintf("%s (%s, %s, %s)", i.Version, source, i.Go, i.Platform)
}

// Short returns the commit's first 12 digits.
func (i Info) Short() string { return i.Commit[:min(len(i.Commit), 12)] }
