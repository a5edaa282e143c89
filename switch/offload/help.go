package offload

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Help returns advice for the user about an error, or "" if there is none.
func Help(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE):
		return "the process has no file descriptor left: end what holds connections to it, " +
			"or start it with more (ulimit -n, LimitNOFILE= of systemd)"
	case errors.Is(err, unix.ENFILE):
		return "the machine has no open file left: raise fs.file-max (sysctl)"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
		return "the machine has no memory for it"
	}
	return ""
}
