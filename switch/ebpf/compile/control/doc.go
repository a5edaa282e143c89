// Package control emits the code of a pipeline, which P4 calls a control block: tables, conditions
// and actions, in the order in which packets reach them. If the paths of ingress are known, it
// emits ingress step by step (steps.go). It emits other pipelines node by node (pipeline.go).
// Actions are in actions.go. Marks between nodes allow the parts of a program to be measured
// (timing_marks.go).
package control
