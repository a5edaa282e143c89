// SPDX-License-Identifier: Apache-2.0
package io.netcraq.streams;

import java.io.IOException;

/**
 * The reader was too slow, and was moved on while it read: what it has read of the batch may have
 * been overwritten. The records count as missed in the next batch.
 */
public class OverrunException extends IOException {
    OverrunException() {
        super("the records were overwritten while they were read: the reader was too slow");
    }
}
