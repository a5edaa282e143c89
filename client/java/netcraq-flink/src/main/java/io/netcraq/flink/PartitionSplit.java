// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import org.apache.flink.api.connector.source.SourceSplit;

/**
 * A partition with its position.
 *
 * @param partition the number of the partition
 * @param incarnation the incarnation of the stream to which the offsets belong
 * @param offset the offset of the next record
 * @param begun whether records of this split were emitted; after that, no record may be missed
 * @param stop the offset at which the split ends; Long.MAX_VALUE if it does not end
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
