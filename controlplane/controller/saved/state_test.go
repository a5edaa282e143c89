package saved

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStateOfALaterVersion: a state with a later version number is refused, and stays unchanged.
// Unknown fields in a state of this version are ignored.
func TestStateOfALaterVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const later = `{"version":2,"chains":{}}`
	write(path, later)
	_, err := File(path).Load()
	if err == nil || !strings.Contains(err.Error(), "is of version 2, and this controller reads version 1") {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != later {
		t.Errorf("the file is %s, %v", b, err)
	}
	write(path, `{"version":1,"chains":{"main":{"config":{"epoch":7,"members":["s1"],"lease":0},"installed":true,"more":1}},"more":{}}`)
	write(strings.TrimSuffix(path, ".json")+".keys.json", `{"keys":[]}`)
	if s, err := File(path).Load(); err != nil || s.Chains["main"].Config.Epoch != 7 {
		t.Errorf("%+v, %v", s, err)
	}
}
