package netplan

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/p4src"
)

// WriteProgram writes the compiled program for a value width into a folder. The controller reads it
// from there.
func WriteProgram(dir string, profile int) (topology.ProgramSpec, error) {
	json, info, err := p4src.Write(filepath.Join(dir, "netcraq"), profile)
	if err != nil {
		return topology.ProgramSpec{}, fmt.Errorf("writing the program for the controller: %w", err)
	}
	return topology.ProgramSpec{Profile: strconv.Itoa(profile), JSON: json, P4Info: info}, nil
}
