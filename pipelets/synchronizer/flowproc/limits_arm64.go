package flowproc

// archAllowed lists the allowed system calls that amd64 does not have.
var archAllowed []uint32
