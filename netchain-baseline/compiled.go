package netchain

import (
	"embed"
	"fmt"

	"github.com/netcraq/netcraq/api/gunzip"
)

//go:embed compiled/netchain-*.json.gz compiled/netchain-*.p4info.txtpb
var compiled embed.FS

// Compiled returns the P4 program for sequence numbers of seqBits bits (16 or 128), as BMv2 JSON
// and as P4Info in protobuf text form.
func Compiled(seqBits int) (json, p4info []byte, err error) {
	if json, err = compiled.ReadFile(fmt.Sprintf("compiled/netchain-%d.json.gz", seqBits)); err == nil {
		p4info, err = compiled.ReadFile(fmt.Sprintf("compiled/netchain-%d.p4info.txtpb", seqBits))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("no NetChain program is compiled for sequence numbers of %d bits: there are 16 and 128", seqBits)
	}
	json, err = gunzip.Bytes(json)
	return json, p4info, err
}
