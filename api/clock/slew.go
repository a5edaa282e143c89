package clock

import "time"

// A program that sets a machine's time does not let it jump. It slews the clocks, so that they run
// faster or slower for a while. On Linux adjtimex accepts a tick of 9,000 to 11,000 microseconds
// instead of 10,000, plus a frequency offset of 500 millionths. So a clock runs at 0.8995 to 1.1005
// of its rate. adjtimex slews all clocks alike, including the clocks that nobody can set
// (CLOCK_MONOTONIC, CLOCK_BOOTTIME, and with them Go's own and bpf_ktime_get_boot_ns). Only
// CLOCK_MONOTONIC_RAW ([Raw]) is exempt. chrony (maxslewrate) and phc2sys may slew by the full
// amount, systemd-timesyncd by up to a twentieth of the rate, and ntpd by less.
//
// Outlasts does not cover one extreme setting. With STA_PLL, a time constant of 0 and an offset of
// half a second, adjtimex removes a quarter of the offset in one second, which is an eighth of the
// rate. No time daemon uses this setting.

// Outlasts returns the longest time, by an unslewed clock, that a period of length d can last if
// another process measures it by a clock that may be slewed. The factor must be at least 1/0.8995 =
// 1.112. The margin up to 1.125 covers oscillators, which differ by a ten-thousandth.
func Outlasts(d time.Duration) time.Duration { return d + d/8 }

// OutlastsSlewed is like Outlasts, but the caller's own clock may be slewed, too. The factor must
// be at least 1.1005/0.8995 = 1.224.
func OutlastsSlewed(d time.Duration) time.Duration { return d + d/4 }
