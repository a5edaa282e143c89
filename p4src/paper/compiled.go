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
