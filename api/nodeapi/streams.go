package nodeapi

// The data of the functions of streams. docs/streams.md is the normative text.

// How the writer treats a consumer that is behind by a partition's whole ring.
const (
	SlowWait = "wait" // it waits for the consumer, StallMillis at most
	SlowSkip = "skip" // the consumer is moved on to the newest, and told how much it missed
)

// Where a reader begins, alongside an offset.
const (
	FromKnown    = ""         // where the consumer of this name was; the oldest record, if that is not known
	FromEarliest = "earliest" // the oldest record that is there
	FromLatest   = "latest"   // the next record
)

// StreamConfig is the configuration of a stream. It never changes.
type StreamConfig struct {
	Partitions  int `json:"partitions,omitempty"`  // 1 to 32. 0: 1
	ObjectBytes int `json:"objectBytes,omitempty"` // a power of two, 1 KiB to 1 MiB. 0: 64 KiB
	Objects     int `json:"objects,omitempty"`     // of each partition's ring. 0: 64
	// Slow is SlowWait ("": that) or SlowSkip.
	Slow string `json:"slow,omitempty"`
	// StallMillis bounds how long the writer waits for a consumer that releases nothing: then it is
	// moved on, and not waited for again until it has noticed. 0: 30 s.
	StallMillis int `json:"stallMs,omitempty"`
	// KeepMillis is how long the node keeps what a named consumer has not read, after the consumer
	// has gone. 0: 30 s.
	KeepMillis int `json:"keepMs,omitempty"`
	// Volatile: records do not survive the server's process.
	Volatile bool `json:"volatile,omitempty"`
	// Source fills the stream. nil: it is appended to by programs.
	Source *StreamSource `json:"source,omitempty"`
}

// StreamSource names what fills a stream. One of its members is set.
type StreamSource struct {
	// Keys fills the stream with commits of the namespace's keys whose names begin with a prefix,
	// each as an Event in JSON.
	Keys *KeysSource `json:"keys,omitempty"`
	// Etcd fills the stream with changes of an etcd's keys, each as an EtcdEvent in JSON.
	Etcd *EtcdSource `json:"etcd,omitempty"`
	// JetStream: a stream of NATS JetStream, as it is.
	JetStream *JetStreamSource `json:"jetstream,omitempty"`
}

// Kind is the name of the member that is set; "": none is, or several are.
func (s *StreamSource) Kind() (kind string) {
	set := 0
	for name, is := range map[string]bool{"keys": s.Keys != nil, "etcd": s.Etcd != nil, "jetstream": s.JetStream != nil} {
		if is {
			kind = name
			set++
		}
	}
	if set != 1 {
		return ""
	}
	return kind
}

// KeysSource is the namespace's keys.
type KeysSource struct {
	Prefix string `json:"prefix"`
}

// EtcdSource is the keys of an etcd that begin with a prefix. Which etcd, and who may have which
// prefixes, its operator tells the server.
type EtcdSource struct {
	Prefix string `json:"prefix"`
}

// JetStreamSource is a stream of JetStream, or those of its subjects that are named (with
// wildcards, as NATS has them).
type JetStreamSource struct {
	Stream  string `json:"stream"`
	Subject string `json:"subject,omitempty"`
}

// Kinds of an EtcdEvent.
const (
	EtcdPut    = "put"
	EtcdDelete = "delete"
	// EtcdState begins the state of all keys, which follows as one put with State for each key;
	// EtcdSynced ends it. Keys that are not reported in between do not exist.
	EtcdState  = "state"
	EtcdSynced = "synced"
	// EtcdMissed stands for an event that does not go into a record, even without its value.
	EtcdMissed = "missed"
)

// EtcdEvent is a record of an EtcdSource.
type EtcdEvent struct {
	Type      string `json:"type"`
	Key       string `json:"key,omitempty"`
	KeyBase64 []byte `json:"keyBase64,omitempty"` // if the key is not UTF-8
	// Value or ValueBase64 is the value of a put. If it does not fit into a record, both are
	// missing, and ValueBytes says how long it is.
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	ValueBytes  int     `json:"valueBytes,omitempty"`
	// Revision is the revision at etcd: that of the change or, for state and synced, that of the
	// whole state.
	Revision int64 `json:"revision"`
	// Version counts how often the key was written since it was made: 1, 2 and so on.
	Version int64 `json:"version,omitempty"`
	// More: the next record has the same revision.
	More bool `json:"more,omitempty"`
	// State: this put is a part of the state, and happened some time before.
	State bool `json:"state,omitempty"`
	// Since belongs to state: changes after this revision were not reported one by one; those are
	// at most Missed revisions of etcd.
	Since  int64 `json:"since,omitempty"`
	Missed int64 `json:"missed,omitempty"`
}

// OpenStreamData creates a stream if none of this name exists, and returns its description.
type OpenStreamData struct {
	Namespace string `json:"namespace,omitempty"`
	Stream    string `json:"stream"`
	// Config is for a stream that is created. If the stream exists, its configuration must be the
	// same. nil: any configuration will do, and no stream is created.
	Config *StreamConfig `json:"config,omitempty"`
}

// StreamAnswer describes a stream.
type StreamAnswer struct {
	Stream string `json:"stream"`
	// Incarnation is drawn at random when a stream is created. Offsets of one incarnation say
	// nothing about another.
	Incarnation string           `json:"incarnation"`
	Made        bool             `json:"made,omitempty"`
	Config      StreamConfig     `json:"config"`
	State       []PartitionState `json:"partitions"`
}

// PartitionState describes a partition. Offsets count its records, from 0.
type PartitionState struct {
	Oldest uint64 `json:"oldest"` // offset of the oldest record that is there
	Next   uint64 `json:"next"`   // of the next one that is appended
}

// StreamData names a stream: deleteStream.
type StreamData struct {
	Namespace string `json:"namespace,omitempty"`
	Stream    string `json:"stream"`
}

// ListStreamsData asks for a namespace's streams.
type ListStreamsData struct {
	Namespace string `json:"namespace,omitempty"`
}

// ListStreamsAnswer has their names, sorted.
type ListStreamsAnswer struct {
	Streams []string `json:"streams"`
}

// RecordData is a record that is appended: bytes, as a key's value.
type RecordData struct {
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Mark        uint64  `json:"mark,omitempty"` // the producer's own number
	// Files are the names of those that the record refers to: they are there as long as it is. The
	// stream is volatile, as files are, and each has MaxRecordFiles at most.
	Files []string `json:"files,omitempty"`
	// Subject and ID are for records of a stream that JetStream keeps. Subject is the subject
	// there; "": the source's, if that has no wildcards. JetStream does not keep a record again
	// whose ID it has seen from this namespace within its window of duplicates.
	Subject string `json:"subject,omitempty"`
	ID      string `json:"id,omitempty"`
}

// AppendData appends records to a partition, in order.
type AppendData struct {
	StreamData
	Partition int          `json:"partition,omitempty"`
	Records   []RecordData `json:"records"`
	// At: append only if the first record gets this offset; otherwise the code is CodeWrongOffset.
	// With it, a partition's only producer appends exactly once, whatever happens to connections
	// and servers.
	At *uint64 `json:"at,omitempty"`
}

// AppendAnswer says how many records were appended: the first Appended ones. The others were not,
// because the request's time ended while the server waited for consumers.
type AppendAnswer struct {
	Offset   uint64 `json:"offset"` // of the first
	Appended int    `json:"appended"`
	// Sequences are JetStream's sequence numbers of the appended records, for a stream that
	// JetStream keeps. Each is its record's mark. Such records come into the stream later; Offset
	// is 0, and has no meaning.
	Sequences []uint64 `json:"sequences,omitempty"`
}

// ReadData asks for records of a partition: pull.
type ReadData struct {
	StreamData
	Partition int `json:"partition,omitempty"`
	// From is FromKnown, FromEarliest or FromLatest, unless Offset is given.
	From   string  `json:"from,omitempty"`
	Offset *uint64 `json:"offset,omitempty"`
	// Incarnation, if given, is the incarnation of the stream that Offset refers to.
	Incarnation string `json:"incarnation,omitempty"`
	// Consumer is a name. The node keeps what this consumer has not read yet. A read from an offset
	// means that the consumer is done with everything before it.
	Consumer   string `json:"consumer,omitempty"`
	MaxRecords int    `json:"maxRecords,omitempty"` // 0: 1,024
	MaxBytes   int    `json:"maxBytes,omitempty"`   // of values. 0, and at most: 128 KiB
	// WaitMillis is how long to wait if there is none. 0: not at all.
	WaitMillis int `json:"waitMs,omitempty"`
}

// ReadAnswer has records, as many as were there and asked for.
type ReadAnswer struct {
	Incarnation string         `json:"incarnation"`
	Offset      uint64         `json:"offset"` // of the first; others follow one another
	Next        uint64         `json:"next"`   // where to read on
	Missed      uint64         `json:"missed,omitempty"`
	Records     []StreamRecord `json:"records"`
}

// StreamRecord is a record that is read.
type StreamRecord struct {
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Mark        uint64  `json:"mark,omitempty"`
	Time        int64   `json:"time"` // when it was appended, in microseconds since 1970
}

// SubscribeData asks for the memory of partitions: push. It works by a Unix socket.
type SubscribeData struct {
	StreamData
	// Partitions are which. None: all.
	Partitions []int `json:"partitions,omitempty"`
	// From is FromKnown, FromEarliest or FromLatest, unless Offsets are given, one for each.
	From        string   `json:"from,omitempty"`
	Offsets     []uint64 `json:"offsets,omitempty"`
	Incarnation string   `json:"incarnation,omitempty"`
	// Consumer is a name. The node remembers its position, and keeps what it has not read for a
	// while after it has gone.
	Consumer string `json:"consumer,omitempty"`
	// Skip: this consumer is moved on rather than waited for, whatever the stream's rule is.
	Skip bool `json:"skip,omitempty"`
}

// SubscribeAnswer comes with Descriptors (SCM_RIGHTS): that of the cursor page, then one for each
// partition, in their order, of its segment. The subscription lasts until it is canceled, the
// connection ends, or the server ends it with an error.
type SubscribeAnswer struct {
	Descriptors int              `json:"descriptors"`
	Incarnation string           `json:"incarnation"`
	Partitions  []PartitionStart `json:"partitions"`
}

// PartitionStart is a partition's segment, and where a subscription begins to read it.
type PartitionStart struct {
	Partition  int    `json:"partition"`
	Bytes      int    `json:"bytes"`      // of the segment
	Generation string `json:"generation"` // of the segment: a decimal number
	Object     uint64 `json:"object"`     // the first that it holds
	Offset     uint64 `json:"offset"`     // of the first record that it gets
	Missed     uint64 `json:"missed,omitempty"`
}

// Bounds of files.
const (
	MaxFileBytes   = 1 << 30
	MaxRecordFiles = 64 // that a record refers to
	MaxAskedFiles  = 1024
)

// MakeFileData makes a file in memory, which one program writes and others map:
// docs/streams-arrow.md.
type MakeFileData struct {
	Namespace string `json:"namespace,omitempty"`
	Bytes     int64  `json:"bytes"`
	// Rewritable: a program that has the file mapped for writing when it is sealed may go on to
	// write to it. So it is only for readers that trust its maker, and say so.
	Rewritable bool `json:"rewritable,omitempty"`
}

// FileAnswer comes with Descriptors (SCM_RIGHTS): one of the file for reading and, if the file is
// new, one for writing before it. The connection holds the file until the request is canceled or
// the connection ends.
type FileAnswer struct {
	Descriptors int    `json:"descriptors"`
	File        string `json:"file,omitempty"` // its name; "": no file has the key, and the caller must make one
	Bytes       int64  `json:"bytes,omitempty"`
	Rewritable  bool   `json:"rewritable,omitempty"`
}

// RewriteFileData asks which of some rewritable files no record refers to. It is answered when
// there is one, or after WaitMillis. Their maker may then write to them without changing a record
// that a reader still holds.
type RewriteFileData struct {
	Namespace string   `json:"namespace,omitempty"`
	Files     []string `json:"files"` // 1 to MaxAskedFiles
	// WaitMillis is how long to wait for one. 0: not at all.
	WaitMillis int `json:"waitMs,omitempty"`
}

// RewriteFileAnswer names those of them.
type RewriteFileAnswer struct {
	Files []string `json:"files"`
}

// SealFileData ends writing to a file, which its maker has unmapped.
type SealFileData struct {
	Namespace string `json:"namespace,omitempty"`
	File      string `json:"file"`
	// Key lets others find the file until its memory is needed, even if nobody holds it. It says
	// what the file was made of, and how.
	Key string `json:"key,omitempty"`
}

// OpenFileData asks for a file by its name or its key. If no file has that key, the first caller
// must make it, and others wait for it.
type OpenFileData struct {
	Namespace string `json:"namespace,omitempty"`
	File      string `json:"file,omitempty"`
	Key       string `json:"key,omitempty"`
	// Rewritable: it may be one that its maker can still write to. Otherwise such a one is refused.
	Rewritable bool `json:"rewritable,omitempty"`
}

// OpenFilesData asks for files that the connection holds: all of them, or none. GiveBack names
// files to give back; this is done in any case, after the others are opened. Names that the
// connection does not hold are ignored. A file that was opened several times is given back as
// often.
type OpenFilesData struct {
	Namespace string   `json:"namespace,omitempty"`
	Files     []string `json:"files,omitempty"`    // MaxRecordFiles at most
	GiveBack  []string `json:"giveBack,omitempty"` // MaxAskedFiles at most
	// Rewritable: they may be such as their maker can still write to.
	Rewritable bool `json:"rewritable,omitempty"`
}

// OpenFilesAnswer comes with Descriptors (SCM_RIGHTS): one for each file, for reading, in the order
// of the request.
type OpenFilesAnswer struct {
	Descriptors int          `json:"descriptors"`
	Files       []OpenedFile `json:"files"`
}

// OpenedFile is one of them.
type OpenedFile struct {
	File       string `json:"file"`
	Bytes      int64  `json:"bytes"`
	Rewritable bool   `json:"rewritable,omitempty"`
}
