// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import com.fasterxml.jackson.databind.JsonNode;
import io.netcraq.streams.NodeConnection;
import io.netcraq.streams.ReaderOptions;
import io.netcraq.streams.ReaderOptions.From;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.util.FlinkRuntimeException;

/** Finds a stream's partitions, once, and assigns each to one reader. */
final class PartitionEnumerator implements SplitEnumerator<PartitionSplit, EnumeratorState> {
    private static final Duration TIMEOUT = Duration.ofSeconds(30);
    private static final long PAUSE_MILLIS = 200;

    private final SplitEnumeratorContext<PartitionSplit> context;
    private final ReaderOptions options;
    private final From from;
    private final boolean bounded;
    private final List<PartitionSplit> waiting;
    private boolean found;

    PartitionEnumerator(SplitEnumeratorContext<PartitionSplit> context, ReaderOptions options, From from,
            boolean bounded, EnumeratorState state) {
        this.context = context;
        this.options = options;
        this.from = from;
        this.bounded = bounded;
        this.waiting = new ArrayList<>(state.waiting());
        this.found = state.found();
    }

    @Override
    public void start() {
        if (!found) {
            context.callAsync(this::find, (splits, error) -> {
                if (error != null) {
                    throw new FlinkRuntimeException("the stream's partitions were not found", error);
                }
                waiting.addAll(splits);
                found = true;
                context.registeredReaders().keySet().forEach(this::assign);
            });
        }
    }

    private List<PartitionSplit> find() throws IOException, InterruptedException {
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        for (;;) {
            try (NodeConnection c = NodeConnection.connect(options.socket(), TIMEOUT)) {
                return splits(c.describe(options.namespace(), options.stream(), TIMEOUT));
            } catch (IOException e) {
                if (!PartitionSplitReader.temporary(e) || System.nanoTime() - deadline > 0) {
                    throw e;
                }
            }
            Thread.sleep(PAUSE_MILLIS);
        }
    }

    private List<PartitionSplit> splits(JsonNode stream) {
        List<PartitionSplit> splits = new ArrayList<>();
        for (JsonNode partition : stream.path("partitions")) {
            long next = partition.path("next").asLong();
            long first = from == From.LATEST ? next : partition.path("oldest").asLong();
            splits.add(new PartitionSplit(splits.size(), stream.path("incarnation").asText(), first, false,
                    bounded ? next : Long.MAX_VALUE));
        }
        return splits;
    }

    /** Assigns the partitions of a subtask to its reader. */
    private void assign(int subtask) {
        if (!found || !context.registeredReaders().containsKey(subtask)) {
            return;
        }
        for (Iterator<PartitionSplit> i = waiting.iterator(); i.hasNext(); ) {
            PartitionSplit split = i.next();
            if (split.partition() % context.currentParallelism() == subtask) {
                i.remove();
                context.assignSplit(split, subtask);
            }
        }
        if (bounded) {
            context.signalNoMoreSplits(subtask);
        }
    }

    @Override
    public void addReader(int subtask) {
        assign(subtask);
    }

    @Override
    public void addSplitsBack(List<PartitionSplit> splits, int subtask) {
        waiting.addAll(splits);
        context.registeredReaders().keySet().forEach(this::assign);
    }

    @Override
    public void handleSplitRequest(int subtask, String host) {
        // Readers do not request splits, because the enumerator assigns them.
    }

    @Override
    public EnumeratorState snapshotState(long checkpoint) {
        return new EnumeratorState(found, new ArrayList<>(waiting));
    }

    @Override
    public void close() {
        // There is nothing to close, because a connection lasts only for one request.
    }
}
