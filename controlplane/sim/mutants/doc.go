// Package mutants lists the rules that can be removed, one at a time, to see that the simulator
// would notice: those of the P4 program, by an edit of the JSON that p4c made of it
// (mutants_program.go, edit.go), and those of the controller, its store and clients
// (mutants_controller.go, by package rules). The ids are those of the model (controlplane/model).
// Package sim hunts them.
package mutants
