// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import io.netcraq.streams.Batch;
import io.netcraq.streams.GarbageException;
import io.netcraq.streams.NodeException;
import io.netcraq.streams.OverrunException;
import io.netcraq.streams.ReaderOptions;
import io.netcraq.streams.StreamReader;
import io.netcraq.streams.StreamRecord;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.functions.util.ListCollector;
import org.apache.flink.connector.base.source.reader.RecordsBySplits;
import org.apache.flink.connector.base.source.reader.RecordsWithSplitIds;
import org.apache.flink.connector.base.source.reader.splitreader.SplitReader;
import org.apache.flink.connector.base.source.reader.splitreader.SplitsChange;
import org.apache.flink.connector.base.source.reader.splitreader.SplitsRemoval;
import org.apache.flink.metrics.Counter;

/**
 * Reads the partitions of one subtask, in a thread of Flink. It copies records out of the node's
 * memory.
 */
final class PartitionSplitReader<T> implements SplitReader<Read<T>, PartitionSplit> {
    private static final Duration POLL = Duration.ofSeconds(1);
    /** How long the reader waits for the node's server before the job fails. */
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private final ReaderOptions options;
    private final RecordDeserializer<T> deserializer;
    private final boolean failOnMissed;
    private final Counter missed;
    private final Done done;
    private final Map<Integer, PartitionSplit> splits = new HashMap<>();
    private final Set<String> finished = new HashSet<>();
    private volatile StreamReader reader; // null while no reader is open
    private volatile boolean woken;
    private long since; // time of the first attempt to open the reader; 0 if it is open

    PartitionSplitReader(ReaderOptions options, RecordDeserializer<T> deserializer, boolean failOnMissed,
            Counter missed, Done done) {
        this.options = options;
        this.deserializer = deserializer;
        this.failOnMissed = failOnMissed;
        this.missed = missed;
        this.done = done;
    }

    /** Whether connecting again may help. */
    static boolean temporary(IOException e) {
        return e instanceof NodeException n ? n.temporary()
                : !(e instanceof GarbageException || e instanceof InterruptedIOException);
    }

    @Override
    public void handleSplitsChanges(SplitsChange<PartitionSplit> change) {
        if (change instanceof SplitsRemoval) {
            change.splits().forEach(s -> splits.remove(s.partition()));
        } else {
            for (PartitionSplit s : change.splits()) {
                if (s.offset() >= s.stop()) {
                    finished.add(s.splitId());
                } else {
                    splits.put(s.partition(), s);
                }
            }
        }
        end();
    }

    @Override
    public RecordsWithSplitIds<Read<T>> fetch() throws IOException {
        Map<String, Collection<Read<T>>> found = new HashMap<>();
        if (finished.isEmpty() && !splits.isEmpty() && open()) {
            Batch batch = woken ? null : reader.next(POLL);
            if (batch != null) {
                take(batch, found);
            }
        }
        woken = false;
        Set<String> ended = new HashSet<>(finished);
        finished.clear();
        return new RecordsBySplits<>(found, ended);
    }

    /** Opens a reader of all partitions. Returns false if there is no server yet. */
    private boolean open() throws IOException {
        if (reader != null) {
            return true;
        }
        Map<Integer, Long> begins = new HashMap<>();
        splits.forEach((n, s) -> begins.put(n, Math.min(s.offset(), done.orElse(n, s.offset()))));
        String incarnation = splits.values().iterator().next().incarnation();
        long now = System.nanoTime();
        since = since == 0 ? now : since;
        try {
            StreamReader opened = StreamReader.open(options.copy().offsets(begins, incarnation)
                    .manual(!options.consumer().isEmpty()).openTimeout(POLL));
            reader = opened;
            since = 0;
            done.by(opened);
            return true;
        } catch (IOException e) {
            if (temporary(e) && now - since < PATIENCE.toNanos()) {
                return false;
            }
            throw e;
        }
    }

    private void take(Batch batch, Map<String, Collection<Read<T>>> found) throws IOException {
        PartitionSplit split = splits.get(batch.partition());
        List<Read<T>> reads = new ArrayList<>(batch.size());
        try {
            for (StreamRecord record : batch) {
                if (record.offset() >= split.offset() && record.offset() < split.stop()) {
                    List<T> values = new ArrayList<>(1);
                    deserializer.deserialize(batch.partition(), record, new ListCollector<>(values));
                    reads.add(new Read<>(values, record.offset() + 1, Math.floorDiv(record.nanos(), 1_000_000L)));
                }
            }
        } catch (IOException | RuntimeException e) {
            if (released(batch)) {
                throw e;
            }
            return;
        }
        if (!released(batch)) {
            return;
        }
        long gone = Math.max(0, batch.offset() - split.offset());
        missed.inc(gone);
        if (gone > 0 && failOnMissed && split.begun()) {
            throw new IOException(gone + " records of partition " + batch.partition() + " of " + options.stream()
                    + " from offset " + split.offset() + " on are gone: the ring has no room for what comes between"
                    + " two checkpoints, or the job was away for longer than the stream's keepMs");
        }
        long next = Math.max(split.offset(), batch.next());
        splits.put(batch.partition(), new PartitionSplit(split.partition(), split.incarnation(), next,
                split.begun() || !reads.isEmpty(), split.stop()));
        found.put(split.splitId(), reads);
        if (next >= split.stop()) {
            finished.add(split.splitId());
            splits.remove(split.partition());
            end(); // the next reader reads the other partitions
        }
    }

    /**
     * Releases a batch. Returns false if the batch was overwritten while it was read, so that it
     * counts as missed.
     */
    private static boolean released(Batch batch) throws IOException {
        try {
            batch.release();
            return true;
        } catch (OverrunException e) {
            return false;
        }
    }

    private void end() {
        StreamReader r = reader;
        reader = null;
        done.by(null);
        if (r != null) {
            r.close();
        }
    }

    @Override
    public void wakeUp() {
        woken = true;
        StreamReader r = reader;
        if (r != null) {
            r.wakeUp();
        }
    }

    @Override
    public void close() {
        end();
    }
}
