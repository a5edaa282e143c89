// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.newsclub.net.unix.AFUNIXSocket;
import org.newsclub.net.unix.AFUNIXSocketAddress;

/**
 * A connection to the node's server. Each request and each answer is a line of JSON
 * (docs/node-api.md).
 */
public final class NodeConnection implements AutoCloseable {
    static final ObjectMapper JSON = JsonMapper.builder()
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
            .build();
    /** Maximum length of a line in bytes. Messages have at most 256 KiB. */
    private static final int MAX_LINE = 1 << 20;
    /** Bytes for 33 file descriptors and the kernel's header. */
    private static final int RIGHTS_BYTES = 256;

    private static final String TCP = "tcp://";
    private static final String UNIX = "unix://";

    private final Socket socket;
    private final InputStream in;
    private final List<FileDescriptor> descriptors = new ArrayList<>();
    private byte[] buffer = new byte[64 << 10];
    private int begin;
    private int end;
    private long ids;

    private NodeConnection(Socket socket) throws IOException {
        this.socket = socket;
        this.in = socket.getInputStream();
    }

    /** Connects to a server. The address is the path of a Unix socket, or "tcp://HOST:PORT". */
    public static NodeConnection connect(String where, Duration timeout) throws IOException {
        int millis = (int) Math.max(1, Math.min(timeout.toMillis(), Integer.MAX_VALUE));
        if (where.startsWith(TCP)) {
            int colon = where.lastIndexOf(':');
            if (colon < TCP.length()) {
                throw new NodeException("invalid_argument", where + " has no port");
            }
            String host = where.substring(TCP.length(), colon).replaceAll("^\\[|]$", "");
            Socket s = new Socket();
            try {
                s.connect(new InetSocketAddress(host, Integer.parseInt(where.substring(colon + 1))), millis);
                s.setTcpNoDelay(true);
                return new NodeConnection(s);
            } catch (IOException | RuntimeException e) {
                s.close();
                throw e instanceof IOException io ? io : new NodeException("invalid_argument", where + ": " + e);
            }
        }
        Path path = Path.of(where.startsWith(UNIX) ? where.substring(UNIX.length()) : where);
        AFUNIXSocket s = AFUNIXSocket.newInstance();
        try {
            s.setAncillaryReceiveBufferSize(RIGHTS_BYTES);
            s.connect(AFUNIXSocketAddress.of(path), millis);
            return new NodeConnection(s);
        } catch (IOException e) {
            s.close();
            throw e;
        }
    }

    /** Returns whether a connection to this address can pass file descriptors. */
    static boolean passesMemory(String where) {
        return !where.startsWith(TCP);
    }

    /** Sends a request, and waits for its answer. Other answers that arrive earlier are dropped. */
    public JsonNode call(String func, ObjectNode data, Duration timeout) throws IOException {
        long deadline = System.nanoTime() + timeout.toNanos();
        long id = send(func, data, Math.max(1, Math.min(timeout.toMillis(), 60_000)));
        try {
            for (;;) {
                // The client waits a little longer than the server, because the server's answer
                // says more than no answer.
                long left = (deadline - System.nanoTime()) / 1_000_000 + 1_000;
                if (left <= 0) {
                    throw new NodeException("timeout", func + " was not answered in time");
                }
                socket.setSoTimeout((int) Math.min(left, Integer.MAX_VALUE));
                JsonNode answer = parse(receive());
                long of = answer.path("id").asLong(-1);
                if (of == id || of == 0 && answer.has("error")) {
                    throwError(answer);
                    return answer.path("data");
                }
            }
        } catch (java.net.SocketTimeoutException e) {
            throw new NodeException("timeout", func + " was not answered in time");
        } finally {
            if (!socket.isClosed()) {
                socket.setSoTimeout(0);
            }
        }
    }

    /**
     * Returns the description of a stream. It has the stream's incarnation and config, and the
     * first and last offsets of its partitions.
     */
    public JsonNode describe(String namespace, String stream, Duration timeout) throws IOException {
        ObjectNode data = JSON.createObjectNode().put("stream", stream);
        if (!namespace.isEmpty()) {
            data.put("namespace", namespace);
        }
        JsonNode found = call("openStream", data, timeout);
        if (!found.path("partitions").isArray() || found.path("incarnation").asText().isEmpty()) {
            throw new GarbageException("an answer that says nothing of a stream");
        }
        return found;
    }

    /** Sends a request, and returns its id. A timeout of 0 means the server's default. */
    synchronized long send(String func, ObjectNode data, long timeoutMillis) throws IOException {
        long id = ++ids;
        ObjectNode request = JSON.createObjectNode().put("id", id).put("func", func);
        request.set("data", data);
        if (timeoutMillis > 0) {
            request.put("timeoutMs", timeoutMillis);
        }
        byte[] text = JSON.writeValueAsBytes(request);
        byte[] line = Arrays.copyOf(text, text.length + 1);
        line[text.length] = '\n';
        socket.getOutputStream().write(line);
        return id;
    }

    /** Receives the next message, and the file descriptors that come with it. */
    byte[] receive() throws IOException {
        int looked = begin;
        for (;;) {
            for (; looked < end; looked++) {
                if (buffer[looked] == '\n') {
                    byte[] line = Arrays.copyOfRange(buffer, begin, looked);
                    begin = looked + 1;
                    return line;
                }
            }
            if (begin > 0) {
                System.arraycopy(buffer, begin, buffer, 0, end - begin);
                end -= begin;
                looked -= begin;
                begin = 0;
            }
            if (end == buffer.length) {
                if (end >= MAX_LINE) {
                    throw new GarbageException("an answer without an end");
                }
                buffer = Arrays.copyOf(buffer, 2 * end);
            }
            int n = in.read(buffer, end, buffer.length - end);
            if (n < 0) {
                throw new EOFException("the node's server ended the connection");
            }
            end += n;
            if (socket instanceof AFUNIXSocket unix) {
                FileDescriptor[] came = unix.getReceivedFileDescriptors();
                if (came != null) {
                    descriptors.addAll(Arrays.asList(came));
                }
            }
        }
    }

    /** Returns the received file descriptors. The caller must close them. */
    List<FileDescriptor> takeDescriptors() {
        List<FileDescriptor> taken = new ArrayList<>(descriptors);
        descriptors.clear();
        return taken;
    }

    static JsonNode parse(byte[] line) throws GarbageException {
        try {
            JsonNode answer = JSON.readTree(line);
            if (!answer.isObject()) {
                throw new GarbageException("an answer that is no object");
            }
            return answer;
        } catch (JsonProcessingException e) {
            throw new GarbageException("an answer that is no JSON", e);
        } catch (IOException e) {
            throw new GarbageException("an answer that cannot be read", e);
        }
    }

    /** Throws the error of an answer, if it has one. */
    static void throwError(JsonNode answer) throws NodeException {
        JsonNode error = answer.get("error");
        if (error != null) {
            throw new NodeException(error.path("code").asText("internal"), error.path("message").asText());
        }
    }

    static void close(List<FileDescriptor> descriptors) {
        for (FileDescriptor d : descriptors) {
            try {
                new FileInputStream(d).close();
            } catch (IOException e) {
                continue; // it is already closed
            }
        }
    }

    /** Closes the connection. A thread that is reading stops. */
    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            return; // it is already closed
        }
    }
}
