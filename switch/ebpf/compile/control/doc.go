// Package control writes a pipeline, which P4 calls a control block: tables, conditions and
// actions, in the order in which packets reach them. Ingress is written step by step if its paths
// are known (steps.go), and other pipelines node by node (pipeline.go). Actions are in actions.go.
// To measure a program in parts, marks are put between its nodes (timing_marks.go).
package control
