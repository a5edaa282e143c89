package program

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/p4src"
	"github.com/netcraq/netcraq/p4src/paper"
)

// TestProgramOfAnotherVersion: a controller refuses to start with a program that lacks an action
// that the controller writes. The error names the missing action and the program's actions.
func TestProgramOfAnotherVersion(t *testing.T) {
	json, text, err := p4src.Compiled(128)
	if err != nil {
		t.Fatal(err)
	}
	info, err := p4rt.ParseInfo(text)
	if err != nil {
		t.Fatal(err)
	}
	other := proto.CloneOf(info.P4Info)
	for _, a := range other.Actions {
		if a.Preamble.Alias == "set_local" {
			a.Preamble.Name, a.Preamble.Alias = "NetcraqIngress.pipeline.chain.take", "take"
		}
	}
	if info, err = p4rt.NewInfo(other); err != nil {
		t.Fatal(err)
	}
	pl, err := p4rt.NewPipeline(info, json)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Read(pl)
	for _, says := range []string{"not of this version", `no action "set_local"`, ", take"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, without %q", err, says)
		}
	}
}

// TestProgramsForMeasurements: a controller does not accept the paper's program. Nor does it accept
// a variant of the shipped program that lacks a guarantee, although the variant has the same
// tables.
func TestProgramsForMeasurements(t *testing.T) {
	json, text, err := p4src.Compiled(128)
	if err != nil {
		t.Fatal(err)
	}
	variant, err := p4rt.ParseInfo(text)
	if err != nil {
		t.Fatal(err)
	}
	other := proto.CloneOf(variant.P4Info)
	other.PkgInfo.Name = "netcraq-measured"
	if variant, err = p4rt.NewInfo(other); err != nil {
		t.Fatal(err)
	}
	paperJSON, paperText, err := paper.Compiled()
	if err != nil {
		t.Fatal(err)
	}
	papers, err := p4rt.ParseInfo(paperText)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		info *p4rt.Info
		json []byte
	}{{"netcraq-measured", variant, json}, {"netcraq_paper", papers, paperJSON}} {
		pl, err := p4rt.NewPipeline(c.info, c.json)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(pl); err == nil || !strings.Contains(err.Error(), `this is the program "`+c.name+`"`) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
