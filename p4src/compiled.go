// Package p4src embeds the compiled NetCRAQ P4 program, so that the project's binaries need neither
// p4c nor a path to the program's files.
//
// The sources are in the same folder. Start reading at netcraq.p4. compile.py compiles them into
// compiled/, and checks that the files there match the sources.
package p4src

import (
	"embed"
	"errors"
	"fmt"
	"os"

	"github.com/netcraq/netcraq/api/gunzip"
)

//go:embed compiled/netcraq-*.json.gz compiled/netcraq-*.p4info.txtpb
var compiled embed.FS

// Profiles are the widths of the value field that the program is compiled for, in bits.
var Profiles = []int{128, 1024, 4096, 8192}

// Compiled returns the v1model program for values of valueBits bits. The results are the BMv2 JSON
// (the P4Runtime device configuration) and the P4Info in protobuf text form. If no program has this
// width, the error lists the supported widths.
func Compiled(valueBits int) (json, p4info []byte, err error) {
	if json, err = compiled.ReadFile(fmt.Sprintf("compiled/netcraq-%d.json.gz", valueBits)); err == nil {
		p4info, err = compiled.ReadFile(fmt.Sprintf("compiled/netcraq-%d.p4info.txtpb", valueBits))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("no program is compiled for values of %d bits; there are profiles %v", valueBits, Profiles)
	}
	json, err = gunzip.Bytes(json)
	return json, p4info, err
}

// Write writes the program for values of valueBits bits into two files, and returns their paths.
// The files are BASE.json, uncompressed, and BASE.p4info.txtpb.
func Write(base string, valueBits int) (json, p4info string, err error) {
	json, p4info = base+".json", base+".p4info.txtpb"
	program, info, err := Compiled(valueBits)
	if err != nil {
		return "", "", err
	}
	return json, p4info, errors.Join(os.WriteFile(json, program, 0o600), os.WriteFile(p4info, info, 0o600))
}
