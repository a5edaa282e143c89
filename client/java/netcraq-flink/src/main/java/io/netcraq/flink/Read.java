// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import java.util.List;

/**
 * What was made of a record.
 *
 * @param values any number of them
 * @param next the offset behind the record
 * @param millis when it was appended
 */
record Read<T>(List<T> values, long next, long millis) {}
