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
 * Reads a stream of the node: docs/streams.md says what is promised.
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
 * It is for one thread, apart from {@link #wakeUp} and {@link #done}. Where the server ends or is
 * killed, it connects again and reads on where it was.
 */
public final class StreamReader implements AutoCloseable, Iterable<Batch> {
    private static final long FIRST_PAUSE_MILLIS = 10;
    private static final long MAX_PAUSE_MILLIS = 1_000;

    final ReaderOptions options;
    String incarnation;

    private final Map<Integer, Long> next = new HashMap<>(); // by partition: where to read on
    private final Map<Integer, Long> done = new HashMap<>(); // what may be forgotten is before this
    private volatile Way way; // written by the reader's thread
    private volatile boolean woken;
    private volatile boolean closed;
    private Batch last;

    /** How records come. Errors that are temporary end it, and it is begun anew. */
    interface Way {
        /** The next batch. Null: there was none before the deadline (of System.nanoTime), or it was woken. */
        Batch read(long deadline) throws IOException;

        /** Has who reads look whether it was woken. */
        void ring();

        /** Tells the node how far the consumer is. */
        void tell(int partition);

        void close();
    }

    private StreamReader(ReaderOptions options) {
        this.options = options.copy();
        this.incarnation = options.incarnation;
        next.putAll(options.offsets);
        done.putAll(options.offsets);
    }

    /** Begins to read. Whether there is such a stream it says at once. */
    public static StreamReader open(ReaderOptions options) throws IOException {
        StreamReader reader = new StreamReader(options);
        reader.begin(deadline(options.openTimeout));
        return reader;
    }

    private static long deadline(Duration timeout) {
        long nanos = timeout.compareTo(Duration.ofDays(3650)) < 0 ? timeout.toNanos() : Duration.ofDays(3650).toNanos();
        return System.nanoTime() + nanos;
    }

    /** Connects, until a deadline, or until it is woken: then there is no way. */
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

    /** Whether it may help to connect again. */
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

    /** Gives the next batch, for which it waits as long as it takes. It releases the batch before. Null: it was woken. */
    public Batch next() throws IOException {
        return next(Duration.ofDays(3650));
    }

    /**
     * Gives the next batch, and releases the batch before. Null: there was none in time, or the reader
     * was woken.
     *
     * @throws OverrunException if the batch before was overwritten while it was read
     * @throws NodeException if the server has refused it
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

    /** Has who waits in {@link #next} return without a batch; if nobody does, the next who would. Any thread may. */
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
     * Says, where the options are {@code manual}, that all records of a partition before an offset are
     * done with, which the consumer was given. Any thread may.
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

    /** Ends it. What it held is given back; for one with a name it is held for a while. */
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

    /** The batches, without an end. Errors are UncheckedIOExceptions. It ends when the reader is woken. */
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

    /** Which stream of its name is read. */
    public String incarnation() {
        return incarnation;
    }

    /** Where a partition is read on; null if nothing is known of it. */
    synchronized Long nextOffset(int partition) {
        return next.get(partition);
    }

    /** Behind the last record that the node may forget. */
    synchronized Long doneOffset(int partition) {
        return done.get(partition);
    }

    /** The partitions of which it is known where to read on. */
    synchronized int[] known() {
        return next.keySet().stream().mapToInt(Integer::intValue).sorted().toArray();
    }

    /**
     * Notes where the node says that a partition begins. What was missed before that is not done with: a
     * batch is to tell of it first, also one of another connection.
     */
    synchronized void beginsAt(int partition, long offset, long missed) throws GarbageException {
        if (missed < 0 || missed > offset) {
            throw new GarbageException(missed + " records are missed before record " + offset);
        }
        next.merge(partition, offset - missed, Math::max);
        done.putIfAbsent(partition, offset - missed);
    }

    /** Notes that everything before an offset was read: there it goes on, whatever happens. */
    synchronized void read(int partition, long offset) {
        next.put(partition, offset);
        if (!options.manual) {
            done.put(partition, offset);
        }
    }

    /** How many records there were between where the reader was and where it goes on. */
    synchronized long missed(int partition, long offset) {
        return Math.max(0, offset - next.getOrDefault(partition, offset));
    }
}
