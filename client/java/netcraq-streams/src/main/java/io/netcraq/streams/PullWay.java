// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/** Requests records of all partitions in parallel. */
final class PullWay implements StreamReader.Way {
    /** How long the server waits for a record before it answers without records. */
    private static final int WAIT_MILLIS = 10_000;

    private static final Duration ANSWER_TIMEOUT = Duration.ofSeconds(5);
    /**
     * Interval at which the client tells the node the position of a consumer that reads ahead of
     * its position.
     */
    private static final long TELL_NANOS = 5_000_000_000L;

    /** How long close waits until the node knows the consumer's position. */
    private static final long CLOSE_NANOS = 1_000_000_000L;

    private final StreamReader reader;
    private final NodeConnection connection;
    private final int[] partitions;
    // partition of each request under way, by the request's id
    private final Map<Long, Integer> asked = new ConcurrentHashMap<>();
    // ids of requests that only report the position
    private final Set<Long> telling = ConcurrentHashMap.newKeySet();
    // answers, errors, and RING, which wakes the reader
    private final LinkedBlockingQueue<Object> came = new LinkedBlockingQueue<>();
    private final Thread listener;
    private long told;

    private static final Object RING = new Object();

    record Answered(long id, ReadAnswer data, JsonNode error) {}

    record ReadAnswer(String incarnation, long offset, long next, long missed, List<ReadRecord> records) {}

    record ReadRecord(String value, byte[] valueBase64, BigInteger mark, long time) {}

    PullWay(StreamReader reader) throws IOException {
        this.reader = reader;
        ReaderOptions o = reader.options;
        connection = NodeConnection.connect(o.socket(), ANSWER_TIMEOUT);
        try {
            JsonNode stream = connection.describe(o.namespace, o.stream, ANSWER_TIMEOUT);
            if (reader.incarnation.isEmpty()) {
                reader.incarnation = stream.path("incarnation").asText();
            }
            int many = stream.path("partitions").size();
            partitions = o.partitions.length > 0 ? o.partitions : IntStream.range(0, many).toArray();
            // These requests make the node keep the records that the consumer has not read.
            if (!o.consumer.isEmpty()) {
                for (int n : partitions) {
                    JsonNode begun = connection.call("read", request(n, reader.doneOffset(n), true).put("maxRecords", 1),
                            ANSWER_TIMEOUT);
                    reader.beginsAt(n, begun.path("offset").asLong(), begun.path("missed").asLong());
                }
            }
            told = System.nanoTime();
            for (int n : partitions) {
                ask(n);
            }
        } catch (IOException | RuntimeException e) {
            connection.close();
            throw e;
        }
        listener = new Thread(this::listen, "netcraq-stream");
        listener.setDaemon(true);
        listener.start();
    }

    /**
     * Returns a request for the records at an offset of a partition. If the offset is null, the
     * options determine the position.
     */
    private ObjectNode request(int n, Long offset, boolean named) {
        ReaderOptions o = reader.options;
        ObjectNode ask = NodeConnection.JSON.createObjectNode().put("stream", o.stream).put("partition", n);
        if (offset != null) {
            ask.put("offset", offset);
        } else if (!o.from.wire.isEmpty()) {
            ask.put("from", o.from.wire);
        }
        ask.put("incarnation", reader.incarnation);
        if (!o.namespace.isEmpty()) {
            ask.put("namespace", o.namespace);
        }
        if (named && !o.consumer.isEmpty()) {
            ask.put("consumer", o.consumer);
        }
        if (o.batchBytes > 0) {
            ask.put("maxBytes", o.batchBytes);
        }
        return ask;
    }

    /**
     * Requests the next records of a partition. A manual consumer reads ahead of its position, so
     * this request has no name.
     */
    private void ask(int n) throws IOException {
        ObjectNode ask = request(n, reader.nextOffset(n), !reader.options.manual).put("waitMs", WAIT_MILLIS);
        synchronized (asked) { // the id must be registered before the answer arrives
            asked.put(connection.send("read", ask, WAIT_MILLIS + 10_000), n);
        }
    }

    private void listen() {
        try {
            for (;;) {
                byte[] line = connection.receive();
                Answered answer;
                try {
                    answer = NodeConnection.JSON.readValue(line, Answered.class);
                } catch (JsonProcessingException e) {
                    throw new GarbageException("an answer that is none", e);
                }
                synchronized (telling) {
                    if (telling.remove(answer.id())) {
                        telling.notifyAll();
                        continue;
                    }
                }
                came.add(answer);
            }
        } catch (IOException e) {
            connection.close();
            came.add(e);
        }
    }

    @Override
    public void ring() {
        came.add(RING);
    }

    @Override
    public Batch read(long deadline) throws IOException {
        for (;;) {
            if (reader.woken()) {
                return null;
            }
            Object found = null;
            try {
                long left = Math.min(deadline - System.nanoTime(), TELL_NANOS);
                found = left > 0 ? came.poll(left, TimeUnit.NANOSECONDS) : came.poll();
            } catch (InterruptedException e) {
                throw StreamReader.interrupted(e);
            }
            tellAgain();
            if (found == null) {
                if (System.nanoTime() - deadline >= 0) {
                    return null;
                }
                continue;
            }
            if (found == RING) {
                continue;
            }
            if (found instanceof IOException e) {
                came.add(e); // the next call gets the same error
                throw e;
            }
            Batch batch = take((Answered) found);
            if (batch != null) {
                return batch;
            }
        }
    }

    /**
     * Makes a batch from an answer. Returns null if the answer has no records; the request is then
     * repeated.
     */
    private Batch take(Answered answer) throws IOException {
        Integer n;
        synchronized (asked) {
            n = asked.remove(answer.id());
        }
        if (answer.error() != null && (n != null || answer.id() == 0)) {
            JsonNode e = answer.error();
            throw new NodeException(e.path("code").asText("internal"), e.path("message").asText());
        }
        if (n == null) {
            return null; // the server has sent this message without a request
        }
        ReadAnswer data = answer.data();
        if (data == null || data.records() == null || data.next() != data.offset() + data.records().size()) {
            throw new GarbageException("an answer that has no records");
        }
        reader.beginsAt(n, data.offset(), data.missed());
        if (data.records().isEmpty()) {
            ask(n);
            return null;
        }
        return new Pulled(n, data, reader.missed(n, data.offset()));
    }

    /** Tells the node the position of a consumer whose requests do not contain it. */
    private void tellAgain() {
        if (reader.options.manual && !reader.options.consumer.isEmpty() && System.nanoTime() - told > TELL_NANOS) {
            told = System.nanoTime();
            Arrays.stream(partitions).forEach(this::tell);
        }
    }

    @Override
    public void tell(int partition) {
        Long done = reader.doneOffset(partition);
        if (reader.options.consumer.isEmpty() || done == null) {
            return;
        }
        try {
            synchronized (telling) { // the id must be registered before the answer arrives
                telling.add(connection.send("read", request(partition, done, true).put("maxRecords", 1), 0));
            }
        } catch (IOException e) {
            connection.close(); // the reading thread notices it
        }
    }

    @Override
    public void close() {
        boolean interrupted = Thread.interrupted();
        try {
            if (!reader.options.consumer.isEmpty()) {
                // the node knows only the position of the last request, so it must get the final
                // position
                Arrays.stream(partitions).forEach(this::tell);
                long deadline = System.nanoTime() + CLOSE_NANOS;
                synchronized (telling) {
                    for (long left; !telling.isEmpty() && listener.isAlive(); ) {
                        if ((left = (deadline - System.nanoTime()) / 1_000_000) <= 0) {
                            break;
                        }
                        telling.wait(Math.min(left, 100));
                    }
                }
            }
            connection.close();
            listener.join(5_000);
        } catch (InterruptedException e) {
            interrupted = true;
        } finally {
            connection.close();
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** A batch with the records of an answer. */
    private final class Pulled extends Batch {
        private final List<ReadRecord> records;

        Pulled(int partition, ReadAnswer answer, long missed) {
            super(answer.incarnation(), partition, answer.offset(), answer.records().size(), missed);
            this.records = answer.records();
        }

        @Override
        StreamRecord record(int i) {
            ReadRecord r = records.get(i);
            ByteBuffer data;
            if (r.valueBase64() != null) {
                data = ByteBuffer.wrap(r.valueBase64());
            } else {
                data = StandardCharsets.UTF_8.encode(r.value() == null ? "" : r.value());
            }
            return new StreamRecord(offset() + i, r.mark() == null ? 0 : r.mark().longValue(), r.time() * 1_000,
                    data.asReadOnlyBuffer());
        }

        @Override
        void letGo() {
            reader.read(partition(), next());
            try {
                ask(partition());
            } catch (IOException e) {
                connection.close(); // the reading thread notices it
            }
        }
    }
}
