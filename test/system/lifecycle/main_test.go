// Package lifecycle has the tests of what an operator does to a whole system in use: start it, fill
// it, change it, update it, and replace switches.
package lifecycle

import (
	"testing"

	"github.com/netcraq/netcraq/test/system/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }
