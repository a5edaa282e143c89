// Package shapes has the networks that seeds run on: lines, stars, meshes and a ring of a few
// switches. Every switch has a host and a hostile host. For each network there is the controller's
// plan.
package shapes
