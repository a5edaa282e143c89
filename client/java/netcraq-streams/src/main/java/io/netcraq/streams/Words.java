// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Reads and writes words and half words in shared memory, which are little-endian and aligned. Each
 * access is atomic.
 */
final class Words {
    private static final VarHandle WORD =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle HALF =
            MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private Words() {}

    static long word(ByteBuffer b, int at) {
        return (long) WORD.getAcquire(b, at);
    }

    /** Reads a word. The read happens after the thread's earlier writes. */
    static long wordNow(ByteBuffer b, int at) {
        return (long) WORD.getVolatile(b, at);
    }

    static void setWord(ByteBuffer b, int at, long value) {
        WORD.setVolatile(b, at, value);
    }

    static boolean swapWord(ByteBuffer b, int at, long from, long to) {
        return WORD.compareAndSet(b, at, from, to);
    }

    static int half(ByteBuffer b, int at) {
        return (int) HALF.getVolatile(b, at);
    }

    static void setHalf(ByteBuffer b, int at, int value) {
        HALF.setVolatile(b, at, value);
    }

    static void addHalf(ByteBuffer b, int at, int more) {
        int unused = (int) HALF.getAndAdd(b, at, more);
    }

    /** Makes sure that later reads happen after earlier reads. */
    static void afterReading() {
        VarHandle.acquireFence();
    }
}
