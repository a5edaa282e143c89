// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;

/**
 * The memory that the server has passed is not that of a stream, or the other side is not a node's
 * server.
 */
public class GarbageException extends IOException {
    GarbageException(String message) {
        super(message);
    }

    GarbageException(String message, Throwable cause) {
        super(message, cause);
    }
}
