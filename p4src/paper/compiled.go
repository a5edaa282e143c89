// Package paper embeds a compiled P4 program: NetCRAQ as the paper "Scalable Data Plane Caching for
// Kubernetes" (CNSM 2022) describes it. The source is netcraq_paper.p4. README.md lists what the
// paper says and what the program adds. The program serves as an illustration and for measurements
// (experiments/paperchain runs it). Package p4src has the program that NetCRAQ ships.
package paper

import (
	"embed"

	"github.com/netcraq/netcraq/api/gunzip"
)

//go:embed compiled/netcraq_paper.json.gz compiled/netcraq_paper.p4info.txtpb
var compiled embed.FS

// Compiled returns the BMv2 JSON of the program, and its P4Info in protobuf text form.
func Compiled() (json, p4info []byte, err error) {
	if json, err = compiled.ReadFile("compiled/netcraq_paper.json.gz"); err != nil {
		return nil, nil, err
	}
	if p4info, err = compiled.ReadFile("compiled/netcraq_paper.p4info.txtpb"); err != nil {
		return nil, nil, err
	}
	json, err = gunzip.Bytes(json)
	return json, p4info, err
}
