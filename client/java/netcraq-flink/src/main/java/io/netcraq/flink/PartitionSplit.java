// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import org.apache.flink.api.connector.source.SourceSplit;

/**
 * A partition, and where it is read on.
 *
 * @param partition its number
 * @param incarnation of the stream that the offsets are of
 * @param offset of the next record
 * @param begun whether records of it were emitted: from then on none may be missed
 * @param stop where it ends; Long.MAX_VALUE: it does not
 */
public record PartitionSplit(int partition, String incarnation, long offset, boolean begun, long stop)
        implements SourceSplit {
    @Override
    public String splitId() {
        return id(partition);
    }

    static String id(int partition) {
        return Integer.toString(partition);
    }
}
