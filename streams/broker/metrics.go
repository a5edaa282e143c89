package broker

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

type counters struct {
	records, bytes, waits, moved, failures, missed atomic.Uint64
}

var (
	descStreams = prometheus.NewDesc("netcraq_streams", "Streams that are there.", nil, nil)
	descMemory  = prometheus.NewDesc("netcraq_streams_memory_bytes",
		"Memory that streams and files have been given, and what callers keep of deleted ones: that of records that "+
			"survive the process counts twice.", nil, nil)
	descKept = prometheus.NewDesc("netcraq_streams_kept_bytes",
		"Memory of deleted streams, files and subscriptions that callers keep by a descriptor or a mapping.", nil, nil)
	descSubscriptions = prometheus.NewDesc("netcraq_streams_subscriptions", "Consumers that have memory mapped.", nil, nil)
	descRecords       = prometheus.NewDesc("netcraq_streams_records_total", "Records that were appended.", nil, nil)
	descBytes         = prometheus.NewDesc("netcraq_streams_bytes_total", "Bytes of records that were appended.", nil, nil)
	descWaits         = prometheus.NewDesc("netcraq_streams_waits_total",
		"How often an append found a ring full, and slept for a consumer.", nil, nil)
	descMoved = prometheus.NewDesc("netcraq_streams_moved_on_total",
		"How often a consumer was moved on to the newest, since it was too slow.", nil, nil)
	descFailures = prometheus.NewDesc("netcraq_streams_source_failures_total",
		"How often a source of a stream ended, and was to be run again.", nil, nil)
	descMissed = prometheus.NewDesc("netcraq_streams_source_missed_total",
		"What sources could not tell: it was gone, or too large for the stream.", nil, nil)
)

var (
	descFiles     = prometheus.NewDesc("netcraq_streams_files", "Files in memory that are there.", nil, nil)
	descFileBytes = prometheus.NewDesc("netcraq_streams_files_bytes", "Bytes of files in memory.", nil, nil)
	descCache     = prometheus.NewDesc("netcraq_streams_cache_total",
		"How often a file was asked for by its key, and was there or was not, and how many were given up.",
		[]string{"result"}, nil)
)

// collector exports a broker's counters.
type collector struct{ b *Broker }

func (c collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

func (c collector) Collect(out chan<- prometheus.Metric) {
	b := c.b
	b.mu.Lock()
	streams, all, kept, consumers := len(b.streams), b.all, b.keptBytes(), 0
	for _, n := range b.consumers {
		consumers += n
	}
	b.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	count := func(d *prometheus.Desc, v *atomic.Uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v.Load()))
	}
	held, bytes, hits, misses, evicted := b.files.Count()
	gauge(descFiles, float64(held))
	gauge(descFileBytes, float64(bytes))
	for result, n := range map[string]uint64{"hit": hits, "miss": misses, "evicted": evicted} {
		out <- prometheus.MustNewConstMetric(descCache, prometheus.CounterValue, float64(n), result)
	}
	gauge(descStreams, float64(streams))
	gauge(descMemory, float64(all))
	gauge(descKept, float64(kept))
	gauge(descSubscriptions, float64(consumers))
	count(descRecords, &b.counters.records)
	count(descBytes, &b.counters.bytes)
	count(descWaits, &b.counters.waits)
	count(descMoved, &b.counters.moved)
	count(descFailures, &b.counters.failures)
	count(descMissed, &b.counters.missed)
}
