// Package lifecycle has the tests of what an operator does to a whole system while it is used: it
// is brought up, filled, changed, updated, and switches are replaced.
package lifecycle

import (
	"testing"

	"github.com/netcraq/netcraq/test/system/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }
