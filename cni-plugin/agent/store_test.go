package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// TestRecordVersions checks that the agent reads records of an older agent, which have no version.
// It reports a record of a later version, and does not change it. It still returns the other
// records.
func TestRecordVersions(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := func(id string) *agentapi.Record {
		return &agentapi.Record{Attachment: agentapi.Attachment{ContainerID: id, IfName: "eth0"}}
	}
	for _, id := range []string{"now", "before", "later"} {
		if err := s.put(r(id)); err != nil {
			t.Fatal(err)
		}
	}
	change := func(id, to string) string {
		path := filepath.Join(dir, hostName(r(id).Attachment)+recordSuffix)
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), `"version":1,`) {
			t.Fatalf("%s, %v", b, err)
		}
		text := strings.Replace(string(b), `"version":1,`, to, 1)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	change("before", "")
	later := change("later", `"version":2,`)
	text, err := os.ReadFile(later)
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.all()
	if len(all) != 2 || err == nil || !strings.Contains(err.Error(), "it is of version 2, and this agent reads version 1") {
		t.Errorf("%v, %v", all, err)
	}
	if after, err := os.ReadFile(later); err != nil || string(after) != string(text) {
		t.Errorf("the record of a later version is %s, %v", after, err)
	}
}
