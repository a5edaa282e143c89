package ports

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offload is one of ethtool's on/off settings, with its commands (linux/ethtool.h).
type offload struct {
	name     string
	get, set uint32
	mask     uint32 // the bit that counts, for settings that share a flag word; 0 for those with a command of their own
}

// offloads are turned off on a port because they show or send frames that never were on the wire: merged on receive, split or summed later on send.
var offloads = []offload{
	{"generic-receive-offload", unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO, 0},
	{"large-receive-offload", unix.ETHTOOL_GFLAGS, unix.ETHTOOL_SFLAGS, 1 << 15}, // ETH_FLAG_LRO
	{"tcp-segmentation-offload", unix.ETHTOOL_GTSO, unix.ETHTOOL_STSO, 0},
	{"generic-segmentation-offload", unix.ETHTOOL_GGSO, unix.ETHTOOL_SGSO, 0},
	{"tx-checksumming", unix.ETHTOOL_GTXCSUM, unix.ETHTOOL_STXCSUM, 0},
}

// offloadSettings remembers what disableOffloads changed.
type offloadSettings struct {
	iface string
	undo  []func(fd int) error
}

// disableOffloads turns off what it can and says what it could not; the result is never nil.
func disableOffloads(iface string) (*offloadSettings, error) { return disable(iface, offloads) }

// DisableMerging turns off what would show one large frame for several that came in by an interface, for switches whose frames are processed in the kernel. restore
// turns on again what was turned off; it is never nil.
func DisableMerging(iface string) (restore func(), err error) {
	s, err := disable(iface, offloads[:2])
	return s.restore, err
}

func disable(iface string, offloads []offload) (*offloadSettings, error) {
	changed := &offloadSettings{iface: iface}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return changed, fmt.Errorf("a socket for ethtool: %w", err)
	}
	defer unix.Close(fd)
	var errs []error
	for _, o := range offloads {
		was, err := ethtool(fd, iface, o.get, 0)
		if err != nil {
			continue // the device does not have it
		}
		bit := o.mask
		if bit == 0 {
			bit = 1
		}
		if was&bit == 0 {
			continue
		}
		if _, err := ethtool(fd, iface, o.set, was&^bit); err != nil {
			errs = append(errs, fmt.Errorf("turning %s off on %s: %w", o.name, iface, err))
			continue
		}
		changed.undo = append(changed.undo, func(fd int) error {
			now, err := ethtool(fd, iface, o.get, 0)
			if err != nil {
				return err
			}
			_, err = ethtool(fd, iface, o.set, now|bit)
			return err
		})
	}
	return changed, errors.Join(errs...)
}

// restore turns on again what was turned off. An interface that is gone needs nothing.
func (s *offloadSettings) restore() {
	if s == nil || len(s.undo) == 0 {
		return
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for i := len(s.undo) - 1; i >= 0; i-- {
		_ = s.undo[i](fd)
	}
	s.undo = nil
}

// ethtool runs one command with a 32-bit argument (struct ethtool_value) and returns the value after it.
func ethtool(fd int, iface string, cmd, data uint32) (uint32, error) {
	type value struct{ cmd, data uint32 }
	v := value{cmd, data}
	var ifr struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	if len(iface) >= len(ifr.name) {
		return 0, unix.ENAMETOOLONG
	}
	copy(ifr.name[:], iface)
	ifr.data = unsafe.Pointer(&v)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr))); errno != 0 {
		return 0, errno
	}
	return v.data, nil
}
