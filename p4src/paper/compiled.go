// Package paper holds NetCRAQ as the paper "Scalable Data Plane Caching for Kubernetes" (CNSM 2022)
// describes it, as p4c compiled it. netcraq_paper.p4 is the source, and README.md lists what the
// paper says and what the program adds. The program is for reading and for measurements
// (experiments/paperchain runs it). Package p4src has the program that NetCRAQ ships.
package paper

import (
	"embed"

	"github.com/netcraq/netcraq/api/gunzip"
)

//go:embed compiled/netcraq_paper.json.gz compiled/netcraq_paper.p4info.txtpb
var compiled embed.FS

// Compiled returns the program: the BMv2 JSON and the P4Info in protobuf text form.
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
