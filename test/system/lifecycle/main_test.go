// Package lifecycle tests what operators do with a whole system while clients use it. Operators
// start it, fill it, change it, update it, and replace switches.
package lifecycle

import (
	"testing"

	"github.com/netcraq/netcraq/test/system/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }
