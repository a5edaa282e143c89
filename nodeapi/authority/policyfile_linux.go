package authority

import (
	"io/fs"
	"syscall"
)

func stampOf(i fs.FileInfo) stamp {
	s := stamp{size: i.Size(), modified: i.ModTime()}
	if st, ok := i.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode = uint64(st.Dev), st.Ino
	}
	return s
}
