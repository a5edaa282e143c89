// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;

/**
 * A record of a stream.
 *
 * @param offset the record's offset in its partition
 * @param mark the producer's own number
 * @param nanos when the record was appended, in nanoseconds since 1970
 * @param data the record's bytes, read-only. By push, they are in the node's memory, and are valid
 * until the batch is released
 */
public record StreamRecord(long offset, long mark, long nanos, ByteBuffer data) {
    /** Returns a copy of the record's bytes. */
    public byte[] bytes() {
        byte[] copy = new byte[data.remaining()];
        data.get(data.position(), copy);
        return copy;
    }

    /** Returns the record's bytes as text in UTF-8. */
    public String text() {
        return StandardCharsets.UTF_8.decode(data.duplicate()).toString();
    }

    /** Returns when the record was appended. */
    public Instant time() {
        return Instant.ofEpochSecond(Math.floorDiv(nanos, 1_000_000_000L), Math.floorMod(nanos, 1_000_000_000L));
    }
}
