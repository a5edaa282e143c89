// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileDescriptor;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.newsclub.net.unix.FileDescriptorCast;

/** Reads from the node's memory. */
final class PushWay implements StreamReader.Way {
    /**
     * Maximum time that the reader sleeps without checking. New records ring the bell, which wakes
     * it earlier.
     */
    private static final long SLEEP_NANOS = 1_000_000_000L;

    private static final Duration ANSWER_TIMEOUT = Duration.ofSeconds(5);

    private final StreamReader reader;
    private final NodeConnection connection;
    private final List<Part> parts = new ArrayList<>();
    private final Thread listener;
    private CursorPage cursor;
    private String incarnation;
    private int turn; // index of the partition to check next
    private volatile IOException ended; // why the subscription has ended; null if it has not ended

    /** A mapped partition. */
    private static final class Part {
        final int number;
        final int cell;
        final Segment segment;
        long object; // number of the object that is being read
        int at; // offset in the object up to which it was read
        long offset; // offset of the record that begins at `at`
        long skip; // records with smaller offsets were already read
        int[] places = new int[64]; // positions of a batch's records while the batch is being made
        /** Objects that were read but are still held. Each has the offset after its last record. */
        final ArrayDeque<long[]> held = new ArrayDeque<>();

        Part(int number, int cell, Segment segment) {
            this.number = number;
            this.cell = cell;
            this.segment = segment;
        }
    }

    PushWay(StreamReader reader) throws IOException {
        this.reader = reader;
        String where = reader.options.socket();
        if (!NodeConnection.passesMemory(where)) {
            throw new NodeException("invalid_argument", "memory is passed by a Unix socket only: read by pull");
        }
        connection = NodeConnection.connect(where, ANSWER_TIMEOUT);
        try {
            subscribe();
        } catch (IOException | RuntimeException e) {
            connection.close();
            throw e;
        } finally {
            NodeConnection.close(connection.takeDescriptors());
        }
        listener = new Thread(this::listen, "netcraq-stream");
        listener.setDaemon(true);
        listener.start();
    }

    private void subscribe() throws IOException {
        ReaderOptions o = reader.options;
        ObjectNode ask = NodeConnection.JSON.createObjectNode().put("stream", o.stream);
        int[] which = o.partitions.length > 0 ? o.partitions : reader.known();
        if (which.length > 0) {
            ArrayNode list = ask.putArray("partitions");
            Arrays.stream(which).forEach(list::add);
        }
        if (reader.known().length > 0) { // the reader continues, or has offsets
            ArrayNode list = ask.putArray("offsets");
            Arrays.stream(which).forEach(n -> list.add(reader.doneOffset(n)));
        } else if (!o.from.wire.isEmpty()) {
            ask.put("from", o.from.wire);
        }
        if (!reader.incarnation.isEmpty()) {
            ask.put("incarnation", reader.incarnation);
        }
        if (!o.namespace.isEmpty()) {
            ask.put("namespace", o.namespace);
        }
        if (!o.consumer.isEmpty()) {
            ask.put("consumer", o.consumer);
        }
        if (o.skip) {
            ask.put("skip", true);
        }
        adopt(connection.call("subscribe", ask, ANSWER_TIMEOUT));
    }

    /** Maps the memory that the server has passed. */
    private void adopt(JsonNode answer) throws IOException {
        List<FileDescriptor> files = connection.takeDescriptors();
        try {
            JsonNode partitions = answer.path("partitions");
            if (files.size() != answer.path("descriptors").asInt() || files.size() != 1 + partitions.size()) {
                throw new GarbageException(files.size() + " descriptors came");
            }
            FileChannel page = FileDescriptorCast.using(files.get(0)).as(FileChannel.class);
            if (page.size() != CursorPage.BYTES) {
                throw new GarbageException("this is no cursor page");
            }
            ByteBuffer memory = page.map(FileChannel.MapMode.READ_WRITE, 0, CursorPage.BYTES);
            cursor = new CursorPage(memory, partitions.size());
            incarnation = answer.path("incarnation").asText();
            reader.incarnation = incarnation;
            for (int cell = 0; cell < partitions.size(); cell++) {
                JsonNode told = partitions.get(cell);
                FileChannel file = FileDescriptorCast.using(files.get(1 + cell)).as(FileChannel.class);
                Part p = new Part(told.path("partition").asInt(), cell,
                        new Segment(file, told.path("bytes").asLong()));
                long begins = told.path("offset").asLong();
                Long was = reader.nextOffset(p.number);
                p.object = told.path("object").bigIntegerValue().longValue();
                p.skip = was == null ? begins : Math.max(begins, was);
                parts.add(p);
                reader.beginsAt(p.number, begins, told.path("missed").asLong());
            }
        } finally {
            NodeConnection.close(files);
        }
    }

    /** Waits for the end of the connection, or of the subscription. */
    private void listen() {
        IOException why;
        try {
            for (;;) {
                NodeConnection.throwError(NodeConnection.parse(connection.receive()));
                NodeConnection.close(connection.takeDescriptors());
            }
        } catch (IOException e) {
            why = e;
        }
        NodeConnection.close(connection.takeDescriptors());
        connection.close(); // a server that is shutting down waits until its clients disconnect
        ended = why;
        ring();
    }

    @Override
    public void ring() {
        cursor.ring();
    }

    @Override
    public Batch read(long deadline) throws IOException {
        Batch batch = look();
        if (batch != null) {
            return batch;
        }
        for (;;) {
            int bell = cursor.bell();
            cursor.waiting(true);
            try {
                batch = look();
                if (batch != null) {
                    return batch;
                }
                if (ended != null) {
                    batch = look(); // there may be records from before the end
                    if (batch != null) {
                        return batch;
                    }
                    throw ended;
                }
                long left = Math.min(SLEEP_NANOS, deadline - System.nanoTime());
                if (reader.woken() || left <= 0) {
                    return null;
                }
                if (Thread.currentThread().isInterrupted()) {
                    throw StreamReader.interrupted(null);
                }
                cursor.sleep(bell, left);
            } finally {
                cursor.waiting(false);
            }
        }
    }

    /** Returns the next batch, or null if there is no new record. */
    private Batch look() throws IOException {
        for (int i = 0; i < parts.size(); i++) {
            Part p = parts.get(turn);
            turn = (turn + 1) % parts.size();
            Batch batch = lookAt(p);
            if (batch != null) {
                return batch;
            }
        }
        return null;
    }

    private Batch lookAt(Part p) throws IOException {
        Segment s = p.segment;
        // Each round reads another object. More rounds than objects are needed only if the memory
        // changes meanwhile. In that case the bell rings, so a reader that finds no record does not
        // go to sleep.
        for (int round = 0; round < s.objects() + 2; round++) {
            long begun = s.begun();
            if (Long.compareUnsigned(p.object, begun) >= 0) {
                return null;
            }
            if (!s.valid(p.object)) {
                movedOn(p);
                continue;
            }
            long first = s.first(p.object);
            long state = s.state(p.object);
            long used = state >>> 32;
            long from = p.at == 0 ? first : p.offset;
            int found = 0;
            int at = p.at;
            int skipped = 0;
            ByteBuffer memory = s.piece(p.object);
            int begin = s.place(p.object) + Segment.OBJECT_HEADER_BYTES;
            if (used <= s.room()) {
                while (used - at >= Segment.RECORD_HEADER_BYTES) {
                    long length = memory.getInt(begin + at) & 0xFFFFFFFFL;
                    if (length > used - at - Segment.RECORD_HEADER_BYTES) {
                        break;
                    }
                    if (from + skipped < p.skip) {
                        skipped++;
                    } else {
                        if (2 * found == p.places.length) {
                            p.places = Arrays.copyOf(p.places, 4 * found);
                        }
                        p.places[2 * found] = begin + at;
                        p.places[2 * found + 1] = (int) length;
                        found++;
                    }
                    at += Segment.RECORD_HEADER_BYTES + (int) ((length + 7) & ~7);
                }
            }
            ByteBuffer records = memory;
            int[] places = Arrays.copyOf(p.places, 2 * found);
            if (reader.options.skip && found > 0) {
                records = copy(memory, places);
            }
            if (!s.valid(p.object)) {
                movedOn(p);
                continue;
            }
            long offset = from + skipped;
            if (at != used || offset + found - first != (state & 0xFFFFFFFFL) || first < 0 || p.at == 0 && from < p.offset) {
                throw new GarbageException("an object of the node's memory has no records where it says so");
            }
            if (found > 0) {
                long missed = reader.missed(p.number, offset);
                Batch batch = new Pushed(p, p.object, offset, found, missed, records, places);
                p.at = at;
                p.offset = offset + found;
                return batch;
            }
            p.at = at;
            p.offset = offset;
            if (Long.compareUnsigned(p.object + 1, begun) >= 0) {
                return null;
            }
            // The number of begun objects was read before the object, so the object is complete,
            // and all of it was read.
            synchronized (this) {
                if (reader.options.manual) {
                    p.held.add(new long[] {p.object, p.offset});
                }
                p.object++;
                p.at = 0;
                letGo(p);
            }
        }
        return null;
    }

    /** Continues at the newest object, because the present one was overwritten. */
    private synchronized void movedOn(Part p) {
        long newest = p.segment.begun() - 1;
        p.object = Long.compareUnsigned(newest, p.object) > 0 ? newest : p.object + 1;
        p.at = 0;
        p.held.clear();
        letGo(p);
    }

    /** Copies records, which may be overwritten, and sets their positions in the copy. */
    private static ByteBuffer copy(ByteBuffer memory, int[] places) {
        int total = 0;
        for (int i = 1; i < places.length; i += 2) {
            total += Segment.RECORD_HEADER_BYTES + places[i];
        }
        ByteBuffer copy = ByteBuffer.allocate(total).order(memory.order());
        int to = 0;
        for (int i = 0; i < places.length; i += 2) {
            int bytes = Segment.RECORD_HEADER_BYTES + places[i + 1];
            copy.put(to, memory, places[i], bytes);
            places[i] = to;
            to += bytes;
        }
        return copy.asReadOnlyBuffer().order(memory.order());
    }

    /** Publishes the reader's position. */
    private synchronized void letGo(Part p) {
        Long done = reader.doneOffset(p.number);
        while (!p.held.isEmpty() && p.held.peek()[1] <= done) {
            p.held.poll();
        }
        cursor.letGo(p.cell, p.held.isEmpty() ? p.object : p.held.peek()[0], done);
    }

    @Override
    public void tell(int partition) {
        for (Part p : parts) {
            if (p.number == partition) {
                letGo(p);
            }
        }
    }

    @Override
    public void close() {
        connection.close();
        boolean interrupted = Thread.interrupted();
        try {
            listener.join(5_000);
        } catch (InterruptedException e) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Records in the node's memory, or copies of them. */
    private final class Pushed extends Batch {
        private final Part part;
        private final long object;
        private final ByteBuffer memory;
        private final int[] places;

        Pushed(Part part, long object, long offset, int size, long missed, ByteBuffer memory, int[] places) {
            super(incarnation, part.number, offset, size, missed);
            this.part = part;
            this.object = object;
            this.memory = memory;
            this.places = places;
        }

        @Override
        StreamRecord record(int i) {
            int at = places[2 * i];
            return new StreamRecord(offset() + i, memory.getLong(at + 8), memory.getLong(at + 16),
                    memory.slice(at + Segment.RECORD_HEADER_BYTES, places[2 * i + 1]));
        }

        @Override
        void letGo() throws IOException {
            if (!reader.options.skip && !part.segment.valid(object)) {
                // These records will be reported as missed. Records that were missed before them
                // are already reported.
                reader.read(part.number, offset());
                throw new OverrunException();
            }
            reader.read(part.number, next());
            PushWay.this.letGo(part);
        }
    }
}
