// Package faults has the tests that kill, stop and cut off parts of a whole system while clients
// use it, and check the clients' history.
package faults

import (
	"testing"

	"github.com/netcraq/netcraq/test/system/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }
