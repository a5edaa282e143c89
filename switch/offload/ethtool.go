package offload

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Setting is the name that ethtool gives a feature of an interface, which can be on or off.
type Setting string

// The settings that switches turn off.
const (
	GenericReceive Setting = "generic-receive-offload" // the kernel merges received frames
	LargeReceive   Setting = "large-receive-offload"   // the device merges received frames
	// The kernel sends large TCP frames that are split later.
	TCPSegments Setting = "tcp-segmentation-offload"
	// The kernel sends large frames of other protocols that are split later.
	GenericSegment Setting = "generic-segmentation-offload"
	// The kernel sends frames whose checksum is completed later.
	TxChecksums Setting = "tx-checksumming"
	// The kernel sends frames with their 802.1Q tag in the metadata instead of the frame.
	TxVLAN Setting = "tx-vlan-offload"
	// The device moves 802.1Q tags of received frames to the metadata.
	RxVLAN Setting = "rx-vlan-offload"
)

// commands has the ethtool commands for reading and changing a setting (linux/ethtool.h). For
// settings that share a word of flags, it also has the setting's bit in that word.
type commands struct {
	get, set, bit uint32
}

var settings = map[Setting]commands{
	GenericReceive: {unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO, 1},
	LargeReceive:   {unix.ETHTOOL_GFLAGS, unix.ETHTOOL_SFLAGS, 1 << 15}, // ETH_FLAG_LRO
	TCPSegments:    {unix.ETHTOOL_GTSO, unix.ETHTOOL_STSO, 1},
	GenericSegment: {unix.ETHTOOL_GGSO, unix.ETHTOOL_SGSO, 1},
	TxChecksums:    {unix.ETHTOOL_GTXCSUM, unix.ETHTOOL_STXCSUM, 1},
	TxVLAN:         {unix.ETHTOOL_GFLAGS, unix.ETHTOOL_SFLAGS, 1 << 7}, // ETH_FLAG_TXVLAN
	RxVLAN:         {unix.ETHTOOL_GFLAGS, unix.ETHTOOL_SFLAGS, 1 << 8}, // ETH_FLAG_RXVLAN
}

// IsOn reports whether a setting of an interface is on. The interface is in the network namespace
// of the calling thread. A setting that the interface does not support counts as off.
func IsOn(name string, s Setting) (bool, error) {
	c := settings[s]
	v, err := ethtool(name, c.get, 0)
	if err == unix.EOPNOTSUPP {
		return false, nil
	}
	return v&c.bit != 0, err
}

// set turns a setting on or off.
func set(name string, s Setting, on bool) error {
	c := settings[s]
	v, err := ethtool(name, c.get, 0)
	if err == nil {
		v &^= c.bit
		if on {
			v |= c.bit
		}
		_, err = ethtool(name, c.set, v)
	}
	if err != nil {
		return fmt.Errorf("turning %s of %s %s: %w", s, name,
			map[bool]string{true: "on", false: "off"}[on], err)
	}
	return nil
}

// TurnOff turns off settings of an interface permanently: it records nothing, so nothing turns them
// on again. The interface is in the network namespace of the calling thread.
func TurnOff(name string, which ...Setting) error {
	for _, s := range which {
		if on, err := IsOn(name, s); err != nil || !on {
			if err != nil {
				return fmt.Errorf("looking whether %s has %s: %w", name, s, err)
			}
			continue
		}
		if err := set(name, s, false); err != nil {
			return err
		}
	}
	return nil
}

// ethtool runs one command with a 32-bit argument (struct ethtool_value) and returns the value that
// the kernel writes back.
func ethtool(name string, cmd, data uint32) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("a socket for ethtool: %w", err)
	}
	defer unix.Close(fd)
	type value struct{ cmd, data uint32 }
	v := value{cmd, data}
	var ifr struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	if len(name) >= len(ifr.name) {
		return 0, unix.ENAMETOOLONG
	}
	copy(ifr.name[:], name)
	ifr.data = unsafe.Pointer(&v)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&ifr))); errno != 0 {
		return 0, errno
	}
	return v.data, nil
}
