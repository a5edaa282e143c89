// Package mutants lists the rules that can be removed, one at a time, to check that the simulator
// notices. mutants_program.go removes rules of the P4 program by edits of the JSON that p4c wrote
// (edit.go). mutants_controller.go removes rules of the controller, its store and clients (package
// rules). The ids are those of the model (controlplane/model). Package sim runs seeds of each
// mutant until one shows a violation.
package mutants
