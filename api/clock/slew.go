package clock

import "time"

// A program that sets a machine's time does not let it jump. It slews the clocks, so that they run
// faster or slower for a while. On Linux adjtimex accepts a tick of 9,000 to 11,000 microseconds
// for one of 10,000, plus a frequency of 500 millionths. So a clock runs at 0.8995 to 1.1005 of its
// rate. adjtimex slews all clocks alike, also those that nobody can set (CLOCK_MONOTONIC,
// CLOCK_BOOTTIME, and with them Go's own and bpf_ktime_get_boot_ns). Only CLOCK_MONOTONIC_RAW
// ([Raw]) is exempt. chrony (maxslewrate) and phc2sys may use all of that, systemd-timesyncd uses
// up to a twentieth, ntpd less.
//
// One setting goes further and is not covered: with STA_PLL, a time constant of 0 and an offset of
// half a second, adjtimex removes a quarter of the offset in one second, which is an eighth of the
// rate. No program that keeps clocks uses it.

// Outlasts returns how long something can last by an unslewed clock, if it ends when d has passed
// by another process's clock, which may be slewed. 1/0.8995 is 1.112; the rest is a margin for
// oscillators, which differ by a ten-thousandth.
func Outlasts(d time.Duration) time.Duration { return d + d/8 }

// OutlastsSlewed is Outlasts by a clock that may itself be slewed: 1.1005/0.8995 is 1.224.
func OutlastsSlewed(d time.Duration) time.Duration { return d + d/4 }
