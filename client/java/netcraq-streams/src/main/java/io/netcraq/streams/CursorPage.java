// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * The page of a subscription in which the consumer publishes its position (docs/streams.md, "The
 * cursor page").
 */
final class CursorPage {
    static final int BYTES = 4096;
    static final int MAX_CELLS = 32;

    private static final ByteBuffer MAGIC = StandardCharsets.US_ASCII.encode("NCCUR001");
    private static final int BELL = 64;
    private static final int WAITING = 68;
    private static final int CELLS = 128;
    private static final int CELL_BYTES = 64;
    private static final int HELD = 0;
    private static final int NEXT = 8;
    private static final int WANT = 16;
    private static final int FREED = 24;

    private final ByteBuffer page;
    private final Futex futex;

    /**
     * Makes a cursor page from memory. The memory should be a cursor page with the given number of
     * cells, and is checked.
     */
    CursorPage(ByteBuffer page, int cells) throws GarbageException {
        this.page = page.order(ByteOrder.LITTLE_ENDIAN);
        if (page.capacity() != BYTES || page.mismatch(MAGIC) != MAGIC.remaining()) {
            throw new GarbageException("this is no cursor page");
        }
        int said = page.getInt(8);
        if (said != cells || said < 1 || said > MAX_CELLS) {
            throw new GarbageException("a cursor page of " + Integer.toUnsignedString(said) + " cells, not " + cells);
        }
        this.futex = new Futex(page);
    }

    int bell() {
        return Words.half(page, BELL);
    }

    void waiting(boolean yes) {
        Words.setHalf(page, WAITING, yes ? 1 : 0);
    }

    void sleep(int bell, long nanos) {
        futex.sleep(BELL, bell, nanos);
    }

    /** Wakes this consumer. */
    void ring() {
        Words.addHalf(page, BELL, 1);
        futex.wake(BELL);
    }

    /**
     * Publishes that the consumer has finished all objects before {@code held}, and all records
     * before {@code next}.
     */
    void letGo(int cell, long held, long next) {
        int at = CELLS + cell * CELL_BYTES;
        Words.setWord(page, at + NEXT, next);
        Words.setWord(page, at + HELD, held);
        long want = Words.wordNow(page, at + WANT);
        if (want != 0 && Long.compareUnsigned(held, want) >= 0 && Words.swapWord(page, at + WANT, want, 0)) {
            Words.addHalf(page, at + FREED, 1);
            futex.wake(at + FREED);
        }
    }
}
