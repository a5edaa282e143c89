// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.flink.api.connector.source.SourceOutput;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.connector.base.source.reader.SingleThreadMultiplexSourceReaderBase;
import org.apache.flink.connector.base.source.reader.splitreader.SplitReader;

/** Emits the records of its partitions, and stores their positions in checkpoints. */
final class NetcraqSourceReader<T>
        extends SingleThreadMultiplexSourceReaderBase<Read<T>, T, PartitionSplit, NetcraqSourceReader.State> {
    /** The position of a partition. */
    static final class State {
        private final PartitionSplit from;
        private long next;
        private boolean begun;

        State(PartitionSplit from) {
            this.from = from;
            this.next = from.offset();
            this.begun = from.begun();
        }
    }

    private final Done done;
    private final TreeMap<Long, Map<Integer, Long>> checkpoints = new TreeMap<>();

    NetcraqSourceReader(Supplier<SplitReader<Read<T>, PartitionSplit>> splitReader, Done done,
            SourceReaderContext context) {
        super(splitReader, NetcraqSourceReader::emit, context.getConfiguration(), context);
        this.done = done;
    }

    private static <T> void emit(Read<T> read, SourceOutput<T> output, State state) {
        for (T value : read.values()) {
            output.collect(value, read.millis());
        }
        state.next = read.next();
        state.begun = true;
    }

    @Override
    public List<PartitionSplit> snapshotState(long checkpoint) {
        List<PartitionSplit> splits = super.snapshotState(checkpoint);
        Map<Integer, Long> offsets = new HashMap<>();
        splits.forEach(s -> offsets.put(s.partition(), s.offset()));
        checkpoints.put(checkpoint, offsets);
        return splits;
    }

    @Override
    public void notifyCheckpointComplete(long checkpoint) throws Exception {
        super.notifyCheckpointComplete(checkpoint);
        Map<Integer, Long> offsets = checkpoints.get(checkpoint);
        if (offsets != null) {
            offsets.forEach(done::upTo);
        }
        checkpoints.headMap(checkpoint, true).clear();
    }

    @Override
    protected void onSplitFinished(Map<String, State> finished) {
        // This source does not request splits.
    }

    @Override
    protected State initializedState(PartitionSplit split) {
        return new State(split);
    }

    @Override
    protected PartitionSplit toSplitType(String id, State s) {
        return new PartitionSplit(s.from.partition(), s.from.incarnation(), s.next, s.begun, s.from.stop());
    }
}
