package buildinfo

import (
	"regexp"
	"testing"
	"time"
)

func TestVersion(t *testing.T) {
	// semver.org's grammar without build metadata, which an image's tag cannot have
	grammar := regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
	if v := Version(); !grammar.MatchString(v) {
		t.Errorf("VERSION is %q, and must be a version of semver.org", v)
	}
	if i := Get(); i.Version != Version() || i.Go == "" || i.Platform == "" {
		t.Errorf("%+v", i)
	}
}

func TestString(t *testing.T) {
	i := Info{Version: "1.2.3", Go: "go1.99", Platform: "linux/riscv64"}
	if got, want := i.String(), "1.2.3 (commit unknown, go1.99, linux/riscv64)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	i.Commit, i.Modified, i.Date = "0123456789abcdef", true, time.Date(2026, 1, 2, 23, 0, 0, 0, time.UTC)
	if got, want := i.String(), "1.2.3 (commit 0123456789ab with changes of 2026-01-02, go1.99, linux/riscv64)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
