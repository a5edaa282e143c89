// SPDX-License-Identifier: Apache-2.0
/**
 * The connector for Apache Flink (netcraq-flink). {@link io.netcraq.flink.NetcraqSource} reads a
 * stream of a node as a source with exactly-once state, and
 * {@link io.netcraq.flink.RecordDeserializer} turns its records into the job's objects.
 */
package io.netcraq.flink;
