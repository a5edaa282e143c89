// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import io.netcraq.streams.StreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Publishes the positions of completed checkpoints, so that the node need not keep earlier records.
 */
final class Done {
    private final Map<Integer, Long> offsets = new ConcurrentHashMap<>();
    private volatile StreamReader reader;

    /** Sets the reader that tells the node the positions. It is null while no reader is open. */
    void by(StreamReader next) {
        reader = next;
        if (next != null) {
            offsets.forEach(next::done);
        }
    }

    /** Records that a completed checkpoint contains all records before an offset. */
    void upTo(int partition, long offset) {
        offsets.merge(partition, offset, Math::max);
        StreamReader r = reader;
        if (r != null) {
            r.done(partition, offset);
        }
    }

    /**
     * Returns the offset of the first record of a partition that may be needed again. If it is not
     * known, returns the given offset.
     */
    long orElse(int partition, long offset) {
        return offsets.getOrDefault(partition, offset);
    }
}
