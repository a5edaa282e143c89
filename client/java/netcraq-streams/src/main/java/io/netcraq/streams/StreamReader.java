// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;

/**
 * Reads a stream of the node. docs/streams.md describes the guarantees.
 *
 * <pre>{@code
 * try (StreamReader reader = StreamReader.open(ReaderOptions.of("orders").consumer("billing"))) {
 *     for (Batch batch : reader) {
 *         for (StreamRecord record : batch) {
 *             System.out.println(record.offset() + " " + record.text());
 *         }
 *     }
 * }
 * }</pre>
  *
  * Only one thread may use it, except for {@link #wakeUp} and {@link #done}. If the server ends or
 * is killed, the reader connects again and continues at the next record.
  */
public final class StreamReader implements AutoCloseable, Iterable<Batch> {
    private static final long FIRST_PAUSE_MILLIS = 10;
    private static final long MAX_PAUSE_MILLIS = 1_000;

    final ReaderOptions options;
    String incarnation;

    // offset of the next record to read, by partition
    private final Map<Integer, Long> next = new HashMap<>();
    // offset before which the node may drop records, by partition
    private final Map<Integer, Long> done = new HashMap<>();
    private volatile Way way; // only the reader's thread writes it
    private volatile boolean woken;
    private volatile boolean closed;
    private Batch last;

    /**
     * A way to get records, which is push or pull. After a temporary error, the reader makes a new
     * way.
     */
    interface Way {
        /**
         * Returns the next batch. Returns null if no batch came before the deadline (on the clock
         * of System.nanoTime), or if the reader was woken.
         */
        Batch read(long deadline) throws IOException;

        /** Makes a waiting reader check whether it was woken. */
        void ring();

        /** Tells the node the consumer's position. */
        void tell(int partition);

        void close();
    }

    private StreamReader(ReaderOptions options) {
        this.options = options.copy();
        this.incarnation = options.incarnation;
        next.putAll(options.offsets);
        done.putAll(options.offsets);
    }

    /** Starts to read. It fails at once if the stream does not exist. */
    public static StreamReader open(ReaderOptions options) throws IOException {
        StreamReader reader = new StreamReader(options);
        reader.begin(deadline(options.openTimeout));
        return reader;
    }

    private static long deadline(Duration timeout) {
        long nanos = timeout.compareTo(Duration.ofDays(3650)) < 0 ? timeout.toNanos() : Duration.ofDays(3650).toNanos();
        return System.nanoTime() + nanos;
    }

    /**
     * Connects, until a deadline. If the reader is woken meanwhile, it has no {@link Way}
     * afterwards.
     */
    private void begin(long deadline) throws IOException {
        for (long pause = FIRST_PAUSE_MILLIS; ; pause = Math.min(2 * pause, MAX_PAUSE_MILLIS)) {
            IOException error;
            try {
                way = options.mode == ReaderOptions.Mode.PUSH ? new PushWay(this) : new PullWay(this);
                return;
            } catch (IOException e) {
                error = e;
            }
            if (!temporary(error) || System.nanoTime() + pause * 1_000_000 - deadline > 0) {
                throw error;
            }
            if (woken) {
                return;
            }
            try {
                Thread.sleep(pause);
            } catch (InterruptedException e) {
                throw interrupted(error);
            }
        }
    }

    /** Whether connecting again may help. */
    private static boolean temporary(IOException e) {
        if (e instanceof NodeException n) {
            return n.temporary();
        }
        return !(e instanceof GarbageException || e instanceof InterruptedIOException || Thread.currentThread().isInterrupted());
    }

    static IOException interrupted(Throwable cause) {
        Thread.currentThread().interrupt();
        InterruptedIOException e = new InterruptedIOException("interrupted while it waited for a record");
        e.initCause(cause);
        return e;
    }

    /**
     * Releases the previous batch, and returns the next batch. Waits for a batch without a time
     * limit. Returns null if the reader was woken.
     */
    public Batch next() throws IOException {
        return next(Duration.ofDays(3650));
    }

    /**
     * Releases the previous batch, and returns the next batch. Returns null if there was no batch
     * in time, or if the reader was woken.
     *
     * @throws OverrunException if the previous batch was overwritten while it was read
     * @throws NodeException if the server has refused the request
     */
    public Batch next(Duration timeout) throws IOException {
        if (closed) {
            throw new IllegalStateException("the reader is closed");
        }
        release();
        long deadline = deadline(timeout);
        for (;;) {
            try {
                if (way == null) {
                    begin(deadline);
                }
                Batch batch = way == null ? null : way.read(deadline);
                if (batch == null) {
                    woken = false;
                }
                last = batch;
                return batch;
            } catch (IOException e) {
                endWay();
                if (!temporary(e)) {
                    throw e;
                }
                if (System.nanoTime() - deadline > 0) {
                    return null;
                }
            }
        }
    }

    private void release() throws IOException {
        Batch before = last;
        last = null;
        if (before != null) {
            before.release();
        }
    }

    /**
     * Makes {@link #next} return without a batch. If no thread is waiting in {@link #next}, this
     * applies to its next call. Any thread may call this method.
     */
    public void wakeUp() {
        woken = true;
        Way w = way;
        if (w != null) {
            w.ring();
        }
    }

    boolean woken() {
        return woken;
    }

    /**
     * Declares, with {@code manual} options, that all records of a partition before an offset are
     * done. The reader must have returned these records. Any thread may call this method.
     */
    public void done(int partition, long offset) {
        synchronized (this) {
            Long read = next.get(partition);
            Long before = done.get(partition);
            if (read == null || before != null && before >= offset) {
                return;
            }
            done.put(partition, Math.min(offset, read));
        }
        Way w = way;
        if (w != null) {
            w.tell(partition);
        }
    }

    /**
     * Closes the reader and releases its records. The node keeps the unread records of a named
     * consumer for some time.
     */
    @Override
    public void close() {
        if (!closed) {
            closed = true;
            last = null;
            endWay();
        }
    }

    private void endWay() {
        Way w = way;
        way = null;
        if (w != null) {
            w.close();
        }
    }

    /**
     * Iterates over the batches without an end. Errors are UncheckedIOExceptions. The iteration
     * ends only when the reader is woken.
     */
    @Override
    public Iterator<Batch> iterator() {
        return new Iterator<>() {
            private Batch found;

            @Override
            public boolean hasNext() {
                try {
                    if (found == null) {
                        found = StreamReader.this.next();
                    }
                    return found != null;
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }

            @Override
            public Batch next() {
                if (!hasNext()) {
                    throw new NoSuchElementException();
                }
                Batch b = found;
                found = null;
                return b;
            }
        };
    }

    /** Returns the incarnation of the stream. */
    public String incarnation() {
        return incarnation;
    }

    /** Returns the offset of the next record to read in a partition, or null if it is not known. */
    synchronized Long nextOffset(int partition) {
        return next.get(partition);
    }

    /** Returns the offset after the last record that the node may drop. */
    synchronized Long doneOffset(int partition) {
        return done.get(partition);
    }

    /** Returns the partitions whose next offset is known. */
    synchronized int[] known() {
        return next.keySet().stream().mapToInt(Integer::intValue).sorted().toArray();
    }

    /**
     * Records the position at which the reading of a partition begins, according to the node.
     * {@code missed} counts records that were lost before that. They must be reported with a batch,
     * even if that batch comes over another connection.
     */
    synchronized void beginsAt(int partition, long offset, long missed) throws GarbageException {
        if (missed < 0 || missed > offset) {
            throw new GarbageException(missed + " records are missed before record " + offset);
        }
        next.merge(partition, offset - missed, Math::max);
        done.putIfAbsent(partition, offset - missed);
    }

    /**
     * Records that all records before an offset were read. After any error, the reader continues
     * there.
     */
    synchronized void read(int partition, long offset) {
        next.put(partition, offset);
        if (!options.manual) {
            done.put(partition, offset);
        }
    }

    /**
     * Returns the number of records between the reader's position and the offset at which it
     * continues.
     */
    synchronized long missed(int partition, long offset) {
        return Math.max(0, offset - next.getOrDefault(partition, offset));
    }
}
