package broker

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/streams/files"
)

// These are the defaults of a stream's configuration.
const (
	defaultObjectBytes = 64 << 10
	defaultObjects     = 64
	defaultMillis      = 30_000
	maxMillis          = 3_600_000
)

// streamName matches a DNS label, because the stream's name is also the name of its folder.
var streamName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// complete returns a configuration with the defaults filled in, or an error if the configuration is
// not valid.
func complete(c nodeapi.StreamConfig) (nodeapi.StreamConfig, error) {
	set := func(v *int, otherwise int) {
		if *v == 0 {
			*v = otherwise
		}
	}
	set(&c.Partitions, 1)
	set(&c.ObjectBytes, defaultObjectBytes)
	set(&c.Objects, defaultObjects)
	set(&c.StallMillis, defaultMillis)
	set(&c.KeepMillis, defaultMillis)
	if c.Slow == "" {
		c.Slow = nodeapi.SlowWait
	}
	err := stream.CheckSize(c.Objects, c.ObjectBytes)
	switch {
	case err != nil:
	case c.Partitions < 1 || c.Partitions > stream.MaxPartitions:
		err = fmt.Errorf("%d partitions; a stream has 1 to %d", c.Partitions, stream.MaxPartitions)
	case c.Slow != nodeapi.SlowWait && c.Slow != nodeapi.SlowSkip:
		err = fmt.Errorf("slow is %q; it is %q or %q", c.Slow, nodeapi.SlowWait, nodeapi.SlowSkip)
	case c.StallMillis < 1 || c.StallMillis > maxMillis || c.KeepMillis < 1 || c.KeepMillis > maxMillis:
		err = fmt.Errorf("stallMs and keepMs are 1 to %d", maxMillis)
	}
	if err != nil {
		return c, invalid("%v", err)
	}
	return c, nil
}

// segmentBytes returns the memory that consumers of a partition map.
func segmentBytes(c nodeapi.StreamConfig) int64 {
	return int64(stream.SegmentBytes(c.Objects, c.ObjectBytes))
}

// bytesOf returns the memory that a stream occupies. A non-volatile stream occupies twice the size
// of its records.
func bytesOf(c nodeapi.StreamConfig) int64 {
	n := int64(c.Partitions) * segmentBytes(c)
	if !c.Volatile {
		n *= 2
	}
	return n
}

// logBytes returns the part of bytesOf that is for the broker's own copy of the records. That copy
// survives the process.
func logBytes(c nodeapi.StreamConfig) int64 { return bytesOf(c) - int64(c.Partitions)*segmentBytes(c) }

func invalid(format string, args ...any) error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", format, args...)
}

func quota(do, format string, args ...any) error {
	return nodeapi.Errorf(nodeapi.CodeQuotaExceeded, do, format, args...)
}

func errKept(namespace string, most int) error {
	return quota("close the descriptors, and unmap the memory, of what was deleted or canceled",
		"callers keep %d deleted memory files of namespace %s", most, namespace)
}

func noStream(name string) error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "create it: openStream with a config, or netcraq stream create",
		"there is no stream %q", name)
}

func errDamaged(name string) error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "open it with its configuration: it begins anew, with another incarnation",
		"the files of the stream %q are damaged or missing; the server's log says which", name)
}

func errFilled(name string) error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "open a stream without a source", "the stream %q is filled by its source",
		name)
}

func errLarge(record, objectBytes int) error {
	return nodeapi.Errorf(nodeapi.CodeTooLarge, "open a stream with larger objects",
		"a record of %d bytes; in objects of %d bytes it has at most %d", record, objectBytes,
		stream.MaxRecord(objectBytes))
}

var errMoved = nodeapi.Errorf(nodeapi.CodeUnavailable, "subscribe again, from where you are",
	"the stream has other memory now")

var errDraining = nodeapi.Errorf(nodeapi.CodeDraining, "connect again", "the server is shutting down")

// Limits are the limits of a broker. A field that is 0 means the default, which is the number at
// the end of the field's comment.
type Limits struct {
	Streams   int   // maximum number of streams per namespace. 64
	Consumers int   // maximum number of subscriptions per namespace. 256
	Names     int   // maximum number of remembered consumer positions, per partition and owner. 64 (all owners: 128)
	Bytes     int64 // maximum memory per namespace. 128 MiB
	AllBytes  int64 // maximum memory of all streams. 1 GiB
	Positions int   // maximum number of partitions in all subscriptions of the server. 8,192
	Kept      int   // maximum number of deleted memory files that callers still have open, per namespace. 1,024
	Files     files.Limits
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		v         *int
		otherwise int
	}{{&l.Streams, 64}, {&l.Consumers, 256}, {&l.Names, 64}, {&l.Positions, 8192},
		{&l.Kept, 1024}} {
		if *d.v == 0 {
			*d.v = d.otherwise
		}
	}
	if l.Bytes == 0 {
		l.Bytes = 128 << 20
	}
	if l.AllBytes == 0 {
		l.AllBytes = 1 << 30
	}
	return l
}

// asNode converts an internal error to an error for a client.
func asNode(err error) error {
	var e *nodeapi.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return invalid("%v", err)
}
