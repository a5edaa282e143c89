package controller

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// versioned is a program of the network and its version. The version is "" if it is unknown.
type versioned struct{ name, version string }

// itself returns the controller's own name and version.
func itself() versioned { return versioned{"the controller", buildinfo.Version()} }

// versionOf returns the version of NetCRAQ that a switch runs, or "" if the switch does not report
// it.
func (c *Controller) versionOf(sw string) string {
	if d := c.net().byName[sw]; d != nil {
		return d.state.Version
	}
	return ""
}

// versionWarning compares the versions of a chain's members and the controller.
func (c *Controller) versionWarning(members []admin.Member) string {
	all := []versioned{itself()}
	for _, m := range members {
		b := versioned{m.Switch, m.Version}
		if text := untested(b, all); text != "" {
			return text
		}
		all = append(all, b)
	}
	return ""
}

// versionWarningAt compares the version of a switch with the versions of the controller and of the
// other connected switches.
func (c *Controller) versionWarningAt(d *device) string {
	all := []versioned{itself()}
	for _, other := range c.net().devices {
		if other.state.Phase != p4rt.Disconnected {
			all = append(all, versioned{other.Spec.Name, other.state.Version})
		}
	}
	return untested(versioned{d.Spec.Name, d.state.Version}, all)
}

// untested names the first program in others whose version is not tested together with a's version,
// and says what to upgrade. It returns "" if all versions are tested together.
func untested(a versioned, others []versioned) string {
	for _, b := range others {
		if testedTogether(a.version, b.version) {
			continue
		}
		older, newer := a, b
		if semver.Compare("v"+a.version, "v"+b.version) > 0 {
			older, newer = b, a
		}
		return fmt.Sprintf("%s has version %s and %s has version %s; versions more than one minor version apart are "+
			"not tested together. Upgrade %s", older.name, older.version, newer.name, newer.version, older.name)
	}
	return ""
}

// testedTogether reports whether the tests of a release cover two versions in one network. They do
// if the major versions are equal, and the minor versions differ by at most one
// (docs/reference/promises.md). It returns true if a version is unknown.
func testedTogether(a, b string) bool {
	if a == "" || b == "" {
		return true
	}
	major, minor := split(a)
	otherMajor, otherMinor := split(b)
	return major == otherMajor && max(minor, otherMinor)-min(minor, otherMinor) <= 1
}

// split returns the major and the minor version of a valid version.
func split(version string) (major string, minor int) {
	major, rest, _ := strings.Cut(semver.MajorMinor("v"+version), ".")
	minor, _ = strconv.Atoi(rest) // the version has been validated, so this cannot fail
	return major, minor
}
