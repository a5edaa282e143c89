// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/** Lets threads sleep and wake each other at words of memory that processes share. */
final class Futex {
    private static final int WAIT = 0;
    private static final int WAKE = 1;
    /** The number of the system call futex on this processor, or 0 if it is not known. */
    private static final long NUMBER =
            Map.of("amd64", 202, "x86_64", 202, "aarch64", 98, "riscv64", 98, "ppc64le", 221)
                    .getOrDefault(System.getProperty("os.arch"), 0);
    /** Nanoseconds between two checks of a word if the program has no futexes. */
    private static final long PAUSE_NANOS = 1_000_000;

    private static final boolean AVAILABLE = available();

    private final ByteBuffer memory; // keeps the memory mapped while its address is used
    private final long address;
    private final Memory timeout = AVAILABLE ? new Memory(16) : null;

    /** Provides futexes in mapped memory. At most one thread at a time may wait. */
    Futex(ByteBuffer memory) {
        this.memory = memory;
        this.address = AVAILABLE ? Pointer.nativeValue(Native.getDirectBufferPointer(memory)) : 0;
    }

    private static boolean available() {
        if (NUMBER == 0) {
            return false;
        }
        try {
            Native.register(Futex.class, "c");
            return true;
        } catch (LinkageError e) {
            return false;
        }
    }

    // This is the C library's function syscall. All arguments are in registers, like those of
    // variadic functions.
    private static native long syscall(
            long number, long word, long what, long value, long timeout, long word2, long value3);

    /**
     * Sleeps while the word at a position has the given value, for a limited time. It may also
     * return earlier without a reason.
     */
    void sleep(int at, int value, long nanos) {
        if (!AVAILABLE) {
            LockSupport.parkNanos(memory, Math.min(nanos, PAUSE_NANOS));
            return;
        }
        timeout.setLong(0, nanos / 1_000_000_000L);
        timeout.setLong(8, nanos % 1_000_000_000L);
        syscall(NUMBER, address + at, WAIT, value & 0xFFFFFFFFL, Pointer.nativeValue(timeout), 0, 0);
    }

    /** Wakes all threads that sleep at a word. */
    void wake(int at) {
        if (AVAILABLE) {
            syscall(NUMBER, address + at, WAKE, 1 << 30, 0, 0, 0);
        }
    }
}
