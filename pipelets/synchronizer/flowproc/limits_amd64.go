package flowproc

import "golang.org/x/sys/unix"

// archAllowed lists the allowed system calls that arm64 does not have.
var archAllowed = []uint32{unix.SYS_ARCH_PRCTL, unix.SYS_POLL, unix.SYS_EPOLL_WAIT, unix.SYS_TIME}
