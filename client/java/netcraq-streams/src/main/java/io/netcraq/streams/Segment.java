// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;

/**
 * The memory of a partition, for reading (docs/streams.md, "The segment"). It is unmapped when no
 * object refers to it, so reading a record too late does not crash the program.
 */
final class Segment {
    static final int HEADER_BYTES = 4096;
    static final int OBJECT_HEADER_BYTES = 64;
    static final int RECORD_HEADER_BYTES = 24;

    private static final ByteBuffer MAGIC = StandardCharsets.US_ASCII.encode("NCSEG001");
    private static final int BEGUN = 64;
    private static final int NUMBER = 0;
    private static final int FIRST = 8;
    private static final int STATE = 16;
    /** A Java buffer has less than 2 GiB, so a segment is mapped in pieces of at most this size. */
    private static final long PIECE_BYTES = 1 << 30;

    private final ByteBuffer header;
    private final ByteBuffer[] pieces;
    private final int objectBytes;
    private final int objects;
    private final int objectsOfPiece;

    /** Maps a file that should be a segment. Everything that is read from it is checked. */
    Segment(FileChannel file, long bytes) throws IOException {
        if (bytes < HEADER_BYTES || file.size() < bytes) {
            throw new GarbageException("a segment that is shorter than it is said to be");
        }
        header = map(file, 0, HEADER_BYTES);
        if (header.mismatch(MAGIC) != MAGIC.remaining()) {
            throw new GarbageException("this is no segment of a stream");
        }
        if (header.getInt(8) != 1 || header.getInt(12) != HEADER_BYTES) {
            throw new GarbageException("a segment of a layout that is not known");
        }
        objectBytes = header.getInt(16);
        objects = header.getInt(20);
        if (objectBytes < 1 << 10 || objectBytes > 1 << 20 || Integer.bitCount(objectBytes) != 1) {
            throw new GarbageException("objects of " + Integer.toUnsignedString(objectBytes) + " bytes");
        }
        if (objects < 4 || objects > 1 << 16) {
            throw new GarbageException("a segment of " + Integer.toUnsignedString(objects) + " objects");
        }
        if (bytes != HEADER_BYTES + (long) objects * objectBytes) {
            throw new GarbageException("a segment that is not as long as it says");
        }
        objectsOfPiece = (int) (PIECE_BYTES / objectBytes);
        pieces = new ByteBuffer[(objects + objectsOfPiece - 1) / objectsOfPiece];
        for (int i = 0; i < pieces.length; i++) {
            long first = (long) i * objectsOfPiece;
            long many = Math.min(objectsOfPiece, objects - first);
            pieces[i] = map(file, HEADER_BYTES + first * objectBytes, many * objectBytes);
        }
    }

    private static ByteBuffer map(FileChannel file, long at, long bytes) throws IOException {
        return file.map(FileChannel.MapMode.READ_ONLY, at, bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Returns the maximum number of bytes of records in an object. */
    int room() {
        return objectBytes - OBJECT_HEADER_BYTES;
    }

    /** Returns the number of objects in the ring. */
    int objects() {
        return objects;
    }

    /**
     * Returns the number of objects that were ever begun. All objects but the newest one are
     * complete.
     */
    long begun() {
        return Words.word(header, BEGUN);
    }

    /** Returns the memory that contains an object. */
    ByteBuffer piece(long number) {
        return pieces[(int) Long.remainderUnsigned(number, objects) / objectsOfPiece];
    }

    /** Returns the position of an object in the memory that {@link #piece} returns. */
    int place(long number) {
        return (int) Long.remainderUnsigned(number, objects) % objectsOfPiece * objectBytes;
    }

    /**
     * Returns whether an object exists, and everything that was read from it so far was its own
     * data.
     */
    boolean valid(long number) {
        Words.afterReading();
        return Words.word(piece(number), place(number) + NUMBER) == number;
    }

    /** Returns the offset of an object's first record. */
    long first(long number) {
        return Words.word(piece(number), place(number) + FIRST);
    }

    /**
     * Returns the number of bytes of records (upper half) and the number of records (lower half) of
     * an object.
     */
    long state(long number) {
        return Words.word(piece(number), place(number) + STATE);
    }
}
