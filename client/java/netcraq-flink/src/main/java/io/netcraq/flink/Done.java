// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import io.netcraq.streams.StreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** What is in a completed checkpoint, so that the node need not hold it any more. */
final class Done {
    private final Map<Integer, Long> offsets = new ConcurrentHashMap<>();
    private volatile StreamReader reader;

    /** Says who tells the node; null: nobody at the moment. */
    void by(StreamReader next) {
        reader = next;
        if (next != null) {
            offsets.forEach(next::done);
        }
    }

    /** Notes that all before an offset is. */
    void upTo(int partition, long offset) {
        offsets.merge(partition, offset, Math::max);
        StreamReader r = reader;
        if (r != null) {
            r.done(partition, offset);
        }
    }

    /** Where a partition's first record is that may be needed again; or what is said here. */
    long orElse(int partition, long offset) {
        return offsets.getOrDefault(partition, offset);
    }
}
