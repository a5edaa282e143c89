// Package offload turns off settings of network interfaces that a switch cannot tolerate, and
// restores them when the switch is gone, however it ended.
//
// Before a setting is changed, a file records the change:
// /run/netcraq-switch/NETNS-IFINDEX-SETTING, with the processes that need the setting off. The last
// of these processes turns the setting on again. A killed process cannot do that. The next process
// that uses this package then finds a file without a living process, and turns the setting on. (If
// that process needs the setting off itself, it leaves it off, and the file still records that it
// was on.) Two switches at the two ends of a cable may need the same setting: neither turns it on
// while the other needs it off.
//
// It imports only package netlinkdump of this project.
package offload
