package flowproc

// archAllowed are the system calls that are allowed and that amd64 does not have.
var archAllowed []uint32
