package translate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// TestBindCorpus binds every pair NAME.json and NAME.p4info.txtpb in the directory that
// NETCRAQ_P4C_OUTPUTS names. p4c wrote these files for its own samples. The outputs of one
// compilation must always agree, except for translated types.
func TestBindCorpus(t *testing.T) {
	dir := os.Getenv("NETCRAQ_P4C_OUTPUTS")
	if dir == "" {
		t.Skip(
			"set NETCRAQ_P4C_OUTPUTS to a directory with outputs of p4c-bm2-ss (NAME.json and NAME.p4info.txtpb)")
	}
	infos, _ := filepath.Glob(filepath.Join(dir, "*.p4info.txtpb"))
	if len(infos) == 0 {
		t.Fatalf("no NAME.p4info.txtpb in %s", dir)
	}
	for _, name := range infos {
		base := strings.TrimSuffix(name, ".p4info.txtpb")
		t.Run(filepath.Base(base), func(t *testing.T) {
			prog, err := bmv2json.ReadFile(base + ".json")
			if err != nil {
				t.Skipf("not a program for us: %v", err)
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			info := &p4cfg.P4Info{}
			if err := prototext.Unmarshal(text, info); err != nil {
				t.Fatal(err)
			}
			if _, err := Bind(info, prog); err != nil &&
				!strings.Contains(err.Error(), "@p4runtime_translation") {
				t.Error(err)
			}
		})
	}
}
