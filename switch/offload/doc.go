// Package offload turns off settings of network interfaces that a switch cannot live with, and on
// again when the switch is gone, however it went.
//
// Before a setting is changed, a file records that: /run/netcraq-switch/NETNS-IFINDEX-SETTING, with
// the processes that need it off. The last one of them turns it on again. A process that is killed
// cannot. The next one that uses this package finds the file with nobody alive in it, and does it
// (or continues with the setting off, and the file still records that it was on). Two switches at
// the two ends of a cable may need the same setting: neither turns it on under the other.
//
// It imports nothing of this project.
package offload
