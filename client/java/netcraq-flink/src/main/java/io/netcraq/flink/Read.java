// SPDX-License-Identifier: Apache-2.0
package io.netcraq.flink;

import java.util.List;

/**
 * The values of a record.
 *
 * @param values any number of values
 * @param next the offset after the record
 * @param millis when the record was appended
 */
record Read<T>(List<T> values, long next, long millis) {}
