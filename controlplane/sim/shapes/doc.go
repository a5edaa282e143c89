// Package shapes has the networks that seeds run on: lines, stars, meshes and a ring of a few
// switches, each with a host and a hostile host at every switch, and the controller's plan for
// each.
package shapes
