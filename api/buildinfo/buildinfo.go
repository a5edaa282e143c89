// Package buildinfo contains the version of NetCRAQ, and information about the build of the
// program. The version is written only in the file VERSION. Packages of other languages, images and
// the Helm chart repeat the version, and "make lint" compares them.
package buildinfo

import (
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Metadata is a key of gRPC metadata. A switch's P4Runtime server sends its version under this key,
// in the header of the answers on StreamChannel.
const Metadata = "netcraq-version"

//go:embed VERSION
var version string

// Info describes the build of a program.
type Info struct {
	Version string `json:"version"` // version of NetCRAQ (semver.org), for example 0.1.0 or 0.2.0-rc1
	// commit of the source, in hex; empty if the program was not built in a checkout
	Commit   string    `json:"commit"`
	Modified bool      `json:"modified"`      // the source had changes that are not in Commit
	Date     time.Time `json:"date,omitzero"` // time of the commit, in UTC; zero if not known
	Go       string    `json:"go"`            // the version of the Go toolchain, for example go1.26.0
	Platform string    `json:"platform"`      // operating system and architecture, for example linux/amd64
}

// Get returns information about the build of this program.
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

// String returns the build information in one line: "0.1.0 (commit 0123456789ab of 2026-11-29,
// go1.26.0, linux/amd64)".
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

// Short returns the first 12 digits of the commit.
func (i Info) Short() string { return i.Commit[:min(len(i.Commit), 12)] }
