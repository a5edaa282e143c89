// Package offload turns off settings of network interfaces that a switch cannot tolerate. It
// restores the settings after the switch has ended, in whatever way it ended.
//
// Before a process changes a setting, it records the change in a file:
// /run/netcraq-switch/NETNS-IFINDEX-SETTING. The file lists the processes that need the setting
// off. The last of these processes turns the setting on again. A killed process cannot do that. The
// next process that uses this package then finds a file without a living process, and turns the
// setting on. If that process needs the setting off itself, it leaves it off, and the file still
// records that it was on. Two switches at the two ends of a cable may need the same setting off.
// Neither turns it on while the other needs it off.
//
// It imports only package netlinkdump of this project.
package offload
