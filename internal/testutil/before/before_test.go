package before

import "testing"

func TestNewest(t *testing.T) {
	version, commit, err := newest("# Releases, and\n# two words\nv0.2.0 abc\nv0.1.0 def\n")
	if version != "v0.2.0" || commit != "abc" || err != nil {
		t.Errorf("%q, %q, %v", version, commit, err)
	}
	if _, _, err := newest("# none\n"); err == nil {
		t.Error("a list without a release is taken")
	}
}
