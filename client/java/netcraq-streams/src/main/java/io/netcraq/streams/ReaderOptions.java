// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/** The options of a reader, for example {@code ReaderOptions.of("orders").consumer("billing")}. */
public final class ReaderOptions implements Serializable {
    /** The way to get records. */
    public enum Mode {
        /**
         * The reader maps the node's memory. It must be on the same machine and use a Unix socket.
         */
        PUSH,
        /** The reader sends requests. It can be on any machine with access to the node API. */
        PULL
    }

    /** The position at which a reader begins if it has no position yet. */
    public enum From {
        /**
         * The last position of the consumer with this name. If there is none, it is the same as
         * EARLIEST.
         */
        KNOWN(""),
        /** The oldest existing record. */
        EARLIEST("earliest"),
        /** The next record to be appended. */
        LATEST("latest");

        final String wire;

        From(String wire) {
            this.wire = wire;
        }
    }

    private static final long serialVersionUID = 1;

    final String stream;
    String socket = "";
    String namespace = "";
    String consumer = "";
    int[] partitions = {};
    From from = From.KNOWN;
    TreeMap<Integer, Long> offsets = new TreeMap<>();
    String incarnation = "";
    Mode mode = Mode.PUSH;
    int batchBytes;
    boolean skip;
    boolean manual;
    Duration openTimeout = Duration.ofSeconds(30);

    private ReaderOptions(String stream) {
        this.stream = Objects.requireNonNull(stream);
    }

    /** Returns options to read the stream with this name. */
    public static ReaderOptions of(String stream) {
        return new ReaderOptions(stream);
    }

    /** Returns an independent copy. */
    public ReaderOptions copy() {
        ReaderOptions o = new ReaderOptions(stream);
        o.socket = socket;
        o.namespace = namespace;
        o.consumer = consumer;
        o.partitions = partitions.clone();
        o.from = from;
        o.offsets = new TreeMap<>(offsets);
        o.incarnation = incarnation;
        o.mode = mode;
        o.batchBytes = batchBytes;
        o.skip = skip;
        o.manual = manual;
        o.openTimeout = openTimeout;
        return o;
    }

    /** Returns the stream's name. */
    public String stream() {
        return stream;
    }

    /**
     * Sets the address of the node's server. It is a path, or "tcp://HOST:PORT". Over TCP, only
     * pull works.
     */
    public ReaderOptions socket(String where) {
        socket = Objects.requireNonNull(where);
        return this;
    }

    /**
     * Returns the address of the node's server. It is the address that was set, otherwise
     * $NETCRAQ_NODE_SOCKET, otherwise the socket of a running {@code netcraq dev} in
     * $XDG_RUNTIME_DIR, otherwise /run/netcraq/node.sock.
     */
    public String socket() {
        if (!socket.isEmpty()) {
            return socket;
        }
        String said = System.getenv("NETCRAQ_NODE_SOCKET");
        if (said != null && !said.isEmpty()) {
            return said;
        }
        String folder = System.getenv("XDG_RUNTIME_DIR");
        if (folder != null && !folder.isEmpty() && Files.exists(Path.of(folder, "netcraq.sock"))) {
            return folder + "/netcraq.sock";
        }
        return "/run/netcraq/node.sock";
    }

    /** Sets the stream's namespace. The default is the program's own namespace. */
    public ReaderOptions namespace(String name) {
        namespace = Objects.requireNonNull(name);
        return this;
    }

    /** Returns the stream's namespace, or "" for the program's own namespace. */
    public String namespace() {
        return namespace;
    }

    /**
     * Sets the consumer's name. The node remembers the position of a named consumer, and keeps its
     * unread records for some time after it has disconnected.
     */
    public ReaderOptions consumer(String name) {
        consumer = Objects.requireNonNull(name);
        return this;
    }

    /** Returns the consumer's name, or "" if it has none. */
    public String consumer() {
        return consumer;
    }

    /** Sets the partitions to read. Without partitions, the reader reads all of them. */
    public ReaderOptions partitions(int... which) {
        partitions = which.clone();
        return this;
    }

    /** Sets the position at which to begin. */
    public ReaderOptions from(From where) {
        from = Objects.requireNonNull(where);
        return this;
    }

    /**
     * Sets the offsets at which to begin, by partition. The incarnation must be that of the stream
     * to which the offsets belong. Other partitions are not read.
     */
    public ReaderOptions offsets(Map<Integer, Long> where, String ofIncarnation) {
        offsets = new TreeMap<>(where);
        incarnation = Objects.requireNonNull(ofIncarnation);
        partitions = offsets.keySet().stream().mapToInt(Integer::intValue).toArray();
        return this;
    }

    /** Sets the mode, which is push or pull. */
    public ReaderOptions mode(Mode how) {
        mode = Objects.requireNonNull(how);
        return this;
    }

    /** Bounds the size of a batch that is read by pull. 0 means the server's bound. */
    public ReaderOptions batchBytes(int most) {
        batchBytes = most;
        return this;
    }

    /**
     * Makes the node overwrite records that a slow reader has not read yet, instead of waiting for
     * the reader. By push, such a reader copies records, because they may be overwritten while they
     * are read.
     */
    public ReaderOptions skip(boolean yes) {
        skip = yes;
        return this;
    }

    /**
     * With true, the node keeps the consumer's records until {@link StreamReader#done} is called
     * for them, and not only until they are released.
     */
    public ReaderOptions manual(boolean yes) {
        manual = yes;
        return this;
    }

    /** Sets how long opening is retried while the server is not available. */
    public ReaderOptions openTimeout(Duration most) {
        openTimeout = Objects.requireNonNull(most);
        return this;
    }
}
