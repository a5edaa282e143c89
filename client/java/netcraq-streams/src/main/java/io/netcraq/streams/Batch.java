// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;
import java.util.Iterator;
import java.util.NoSuchElementException;

/** Some records of one partition that follow one another. */
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

    /** Which stream of this name it is of. */
    public String incarnation() {
        return incarnation;
    }

    /** Of which partition they are. */
    public int partition() {
        return partition;
    }

    /** The first record's offset. */
    public long offset() {
        return offset;
    }

    /** The offset behind the last record. */
    public long next() {
        return offset + size;
    }

    /** How many records before the first were gone when they were to be read. */
    public long missed() {
        return missed;
    }

    /** How many records there are. */
    public int size() {
        return size;
    }

    /** One of them, counted from 0. */
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
     * Lets go of the batch: its reader is done with it. {@link StreamReader#next} releases the batch
     * before it.
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
