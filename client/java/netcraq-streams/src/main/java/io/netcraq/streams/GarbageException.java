// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;

/** What was passed is no memory of a stream, or what answers is no node's server. */
public class GarbageException extends IOException {
    GarbageException(String message) {
        super(message);
    }

    GarbageException(String message, Throwable cause) {
        super(message, cause);
    }
}
