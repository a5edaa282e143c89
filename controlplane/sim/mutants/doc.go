// Package mutants lists the rules that can be removed, one at a time, to check that the simulator
// notices. Rules of the P4 program are removed by an edit of the JSON that p4c made of it
// (mutants_program.go, edit.go), and rules of the controller, its store and clients
// (mutants_controller.go, through package rules). The ids are those of the model
// (controlplane/model). Package sim hunts them.
package mutants
