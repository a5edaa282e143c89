// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;
import java.util.Iterator;
import java.util.NoSuchElementException;

/** Consecutive records of one partition. */
public abstract class Batch implements Iterable<StreamRecord> {
    private final String incarnation;
    private final int partition;
    private final long offset;
    private final int size;
    private final long missed;
    private boolean released;

    Batch(String incarnation, int partition, long offset, int size, long missed) {
        this.incarnation = incarnation;
        this.partition = partition;
        this.offset = offset;
        this.size = size;
        this.missed = missed;
    }

    /**
     * Returns the incarnation, which distinguishes the stream from other streams that have had the
     * same name.
     */
    public String incarnation() {
        return incarnation;
    }

    /** Returns the partition of the records. */
    public int partition() {
        return partition;
    }

    /** Returns the first record's offset. */
    public long offset() {
        return offset;
    }

    /** Returns the offset after the last record. */
    public long next() {
        return offset + size;
    }

    /**
     * Returns the number of records directly before this batch that were overwritten before they
     * could be read.
     */
    public long missed() {
        return missed;
    }

    /** Returns the number of records. */
    public int size() {
        return size;
    }

    /** Returns a record by its index. Indices begin with 0. */
    public StreamRecord get(int i) {
        if (released) {
            throw new IllegalStateException("the batch was released");
        }
        if (i < 0 || i >= size) {
            throw new IndexOutOfBoundsException(i);
        }
        return record(i);
    }

    @Override
    public Iterator<StreamRecord> iterator() {
        return new Iterator<>() {
            private int i;

            @Override
            public boolean hasNext() {
                return i < size;
            }

            @Override
            public StreamRecord next() {
                if (i >= size) {
                    throw new NoSuchElementException();
                }
                return get(i++);
            }
        };
    }

    /**
     * Ends the use of the batch. {@link StreamReader#next} releases the previous batch.
     *
     * @throws OverrunException if the records were overwritten meanwhile
     */
    public void release() throws IOException {
        if (!released) {
            released = true;
            letGo();
        }
    }

    abstract StreamRecord record(int i);

    abstract void letGo() throws IOException;
}
