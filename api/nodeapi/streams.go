package nodeapi

// The data of the functions of streams. docs/streams.md is the normative text.

// How the writer treats a consumer that is a whole ring of the partition behind.
const (
	SlowWait = "wait" // the writer waits for the consumer, at most StallMillis
	SlowSkip = "skip" // the consumer is moved on to the newest record, and told how many it missed
)

// Where a reader begins, as an alternative to an offset.
const (
	FromKnown    = ""         // the last position of this consumer; if that is unknown, the oldest record
	FromEarliest = "earliest" // the oldest existing record
	FromLatest   = "latest"   // the next record
)

// StreamConfig is the configuration of a stream. It never changes.
type StreamConfig struct {
	Partitions  int `json:"partitions,omitempty"`  // 1 to 32. 0: 1
	ObjectBytes int `json:"objectBytes,omitempty"` // a power of two, 1 KiB to 1 MiB. 0: 64 KiB
	Objects     int `json:"objects,omitempty"`     // number in each partition's ring. 0: 64
	// Slow is SlowWait ("": that) or SlowSkip.
	Slow string `json:"slow,omitempty"`
	// StallMillis is the time for which the writer waits for a consumer that releases nothing. Then
	// the consumer is moved on, and the writer does not wait for it again until it has noticed
	// that. 0: 30 s.
	StallMillis int `json:"stallMs,omitempty"`
	// KeepMillis is the time for which the node keeps the unread records of a named consumer that
	// has gone. 0: 30 s.
	KeepMillis int `json:"keepMs,omitempty"`
	// Volatile records do not survive the server's process.
	Volatile bool `json:"volatile,omitempty"`
	// Source fills the stream. nil: programs append to it.
	Source *StreamSource `json:"source,omitempty"`
}

// StreamSource names the source of a stream. Exactly one of its members is set.
type StreamSource struct {
	// Keys fills the stream with commits of the namespace's keys whose names begin with a prefix,
	// each as an Event in JSON.
	Keys *KeysSource `json:"keys,omitempty"`
	// Etcd fills the stream with changes of an etcd's keys, each as an EtcdEvent in JSON.
	Etcd *EtcdSource `json:"etcd,omitempty"`
	// JetStream fills the stream with the messages of a stream of NATS JetStream, unchanged.
	JetStream *JetStreamSource `json:"jetstream,omitempty"`
}

// Kind returns the name of the member that is set; "": none is, or several are.
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

// KeysSource is the keys of the namespace with a prefix.
type KeysSource struct {
	Prefix string `json:"prefix"`
}

// EtcdSource is the keys of an etcd that begin with a prefix. The server's operator configures the
// etcd, and the prefixes that each namespace may use.
type EtcdSource struct {
	Prefix string `json:"prefix"`
}

// JetStreamSource is a stream of JetStream, or those of its subjects that match Subject (with
// NATS's wildcards).
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
	// EtcdMissed replaces an event that does not fit into a record, even without its value.
	EtcdMissed = "missed"
)

// EtcdEvent is a record of an EtcdSource.
type EtcdEvent struct {
	Type      string `json:"type"`
	Key       string `json:"key,omitempty"`
	KeyBase64 []byte `json:"keyBase64,omitempty"` // if the key is not UTF-8
	// Value or ValueBase64 is the value of a put. If it does not fit into a record, both are
	// missing, and ValueBytes is its length.
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	ValueBytes  int     `json:"valueBytes,omitempty"`
	// Revision is etcd's revision of the change or, for state and synced, of the whole state.
	Revision int64 `json:"revision"`
	// Version counts the writes of the key since it was created: 1, 2 and so on.
	Version int64 `json:"version,omitempty"`
	// More reports that the next record has the same revision.
	More bool `json:"more,omitempty"`
	// State reports that this put is a part of the state, and happened earlier.
	State bool `json:"state,omitempty"`
	// Since belongs to state: changes after this revision were not reported individually. There are
	// at most Missed such revisions of etcd.
	Since  int64 `json:"since,omitempty"`
	Missed int64 `json:"missed,omitempty"`
}

// OpenStreamData creates a stream if none of this name exists, and returns its description.
type OpenStreamData struct {
	Namespace string `json:"namespace,omitempty"`
	Stream    string `json:"stream"`
	// Config is the configuration of a stream that is created. If the stream exists, its
	// configuration must be the same. nil: no stream is created, and any configuration is accepted.
	Config *StreamConfig `json:"config,omitempty"`
}

// StreamAnswer describes a stream.
type StreamAnswer struct {
	Stream string `json:"stream"`
	// Incarnation is a random identifier from the creation of the stream. Offsets belong to one
	// incarnation, and have no meaning in another one.
	Incarnation string           `json:"incarnation"`
	Made        bool             `json:"made,omitempty"`
	Config      StreamConfig     `json:"config"`
	State       []PartitionState `json:"partitions"`
}

// PartitionState describes a partition. Offsets count its records, from 0.
type PartitionState struct {
	Oldest uint64 `json:"oldest"` // offset of the oldest existing record
	Next   uint64 `json:"next"`   // offset of the next record to be appended
}

// StreamData names a stream, for deleteStream.
type StreamData struct {
	Namespace string `json:"namespace,omitempty"`
	Stream    string `json:"stream"`
}

// ListStreamsData requests the names of a namespace's streams.
type ListStreamsData struct {
	Namespace string `json:"namespace,omitempty"`
}

// ListStreamsAnswer has the names, sorted.
type ListStreamsAnswer struct {
	Streams []string `json:"streams"`
}

// RecordData is a record to append. Its data are bytes, like a key's value.
type RecordData struct {
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Mark        uint64  `json:"mark,omitempty"` // the producer's own number
	// Files are the names of the files that the record refers to; they exist as long as the record.
	// The stream must be volatile, as files are. At most MaxRecordFiles.
	Files []string `json:"files,omitempty"`
	// Subject and ID are for records of a stream that JetStream stores. Subject is the subject
	// there; "": the source's subject, if it has no wildcards. JetStream does not store a record
	// whose ID it has seen from this namespace within its window for duplicates.
	Subject string `json:"subject,omitempty"`
	ID      string `json:"id,omitempty"`
}

// AppendData appends records to a partition, in order.
type AppendData struct {
	StreamData
	Partition int          `json:"partition,omitempty"`
	Records   []RecordData `json:"records"`
	// At makes the append conditional: the first record must get this offset, otherwise the code is
	// CodeWrongOffset. With it, a partition's only producer appends each record exactly once,
	// whatever happens to connections and servers.
	At *uint64 `json:"at,omitempty"`
}

// AppendAnswer reports the number of appended records, which are the first ones. The rest was not
// appended, because the request timed out while the server waited for consumers.
type AppendAnswer struct {
	Offset   uint64 `json:"offset"` // offset of the first record
	Appended int    `json:"appended"`
	// Sequences are JetStream's sequence numbers of the stored records, for a stream that JetStream
	// stores. Each is the mark of its record. Such records come into the stream later, so Offset is
	// 0 and has no meaning.
	Sequences []uint64 `json:"sequences,omitempty"`
}

// ReadData requests records of a partition (pull).
type ReadData struct {
	StreamData
	Partition int `json:"partition,omitempty"`
	// From is FromKnown, FromEarliest or FromLatest, unless Offset is given.
	From   string  `json:"from,omitempty"`
	Offset *uint64 `json:"offset,omitempty"`
	// Incarnation, if given, is the incarnation of the stream that Offset refers to.
	Incarnation string `json:"incarnation,omitempty"`
	// Consumer is a name. The node keeps this consumer's unread records. A read from an offset
	// means that the consumer is done with all earlier records.
	Consumer   string `json:"consumer,omitempty"`
	MaxRecords int    `json:"maxRecords,omitempty"` // 0: 1,024
	MaxBytes   int    `json:"maxBytes,omitempty"`   // bytes of values. 0: the maximum, 128 KiB
	// WaitMillis is the time to wait if there are no records. 0: do not wait.
	WaitMillis int `json:"waitMs,omitempty"`
}

// ReadAnswer has the existing records, as many as were requested.
type ReadAnswer struct {
	Incarnation string         `json:"incarnation"`
	Offset      uint64         `json:"offset"` // offset of the first record; offsets are consecutive
	Next        uint64         `json:"next"`   // offset from which to continue
	Missed      uint64         `json:"missed,omitempty"`
	Records     []StreamRecord `json:"records"`
}

// StreamRecord is a record of a stream.
type StreamRecord struct {
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Mark        uint64  `json:"mark,omitempty"`
	Time        int64   `json:"time"` // when it was appended, in microseconds since 1970
}

// SubscribeData requests the memory of partitions (push). It needs a Unix socket.
type SubscribeData struct {
	StreamData
	// Partitions are the partitions to read. None: all.
	Partitions []int `json:"partitions,omitempty"`
	// From is FromKnown, FromEarliest or FromLatest. It is ignored if there are Offsets, one for
	// each partition.
	From        string   `json:"from,omitempty"`
	Offsets     []uint64 `json:"offsets,omitempty"`
	Incarnation string   `json:"incarnation,omitempty"`
	// Consumer is a name. The node remembers its position, and keeps its unread records for some
	// time after it has gone.
	Consumer string `json:"consumer,omitempty"`
	// Skip makes the node move this consumer on instead of waiting for it, whatever the stream's
	// rule is.
	Skip bool `json:"skip,omitempty"`
}

// SubscribeAnswer comes with Descriptors (SCM_RIGHTS): first one of the cursor page, and then one
// of the segment of each partition, in order. The subscription lasts until it is canceled, the
// connection ends, or the server ends it with an error.
type SubscribeAnswer struct {
	Descriptors int              `json:"descriptors"`
	Incarnation string           `json:"incarnation"`
	Partitions  []PartitionStart `json:"partitions"`
}

// PartitionStart is a partition's segment, and the position at which a subscription begins.
type PartitionStart struct {
	Partition  int    `json:"partition"`
	Bytes      int    `json:"bytes"`      // size of the segment
	Generation string `json:"generation"` // identifies the segment: a decimal number
	Object     uint64 `json:"object"`     // the first object that the consumer holds
	Offset     uint64 `json:"offset"`     // offset of the first record that it gets
	Missed     uint64 `json:"missed,omitempty"`
}

// Limits for files.
const (
	MaxFileBytes   = 1 << 30
	MaxRecordFiles = 64 // files that a record may refer to
	MaxAskedFiles  = 1024
)

// MakeFileData makes a file in memory, which one program writes and other programs map:
// docs/streams-arrow.md.
type MakeFileData struct {
	Namespace string `json:"namespace,omitempty"`
	Bytes     int64  `json:"bytes"`
	// Rewritable: a program that has mapped the file for writing before it is sealed can continue
	// to write to it. So only readers that trust its maker should open it, and they must set
	// Rewritable, too.
	Rewritable bool `json:"rewritable,omitempty"`
}

// FileAnswer comes with Descriptors (SCM_RIGHTS): one for reading the file and, if the file is new,
// one for writing before it. The connection holds the file until the request is canceled or the
// connection ends.
type FileAnswer struct {
	Descriptors int `json:"descriptors"`
	// the file's name; "": no file has the key, and the caller must make one
	File       string `json:"file,omitempty"`
	Bytes      int64  `json:"bytes,omitempty"`
	Rewritable bool   `json:"rewritable,omitempty"`
}

// RewriteFileData asks to which of some rewritable files no record refers. It is answered when
// there is one, or after WaitMillis. The maker may then write to these files without changing a
// record that a reader still holds.
type RewriteFileData struct {
	Namespace string   `json:"namespace,omitempty"`
	Files     []string `json:"files"` // 1 to MaxAskedFiles
	// WaitMillis is the time to wait for a free file. 0: do not wait.
	WaitMillis int `json:"waitMs,omitempty"`
}

// RewriteFileAnswer names the files to which no record refers.
type RewriteFileAnswer struct {
	Files []string `json:"files"`
}

// SealFileData ends writing to a file, which its maker must have unmapped.
type SealFileData struct {
	Namespace string `json:"namespace,omitempty"`
	File      string `json:"file"`
	// Key lets other programs find the file until its memory is needed, even if no one holds it. It
	// identifies the source of the content, and how the content was made.
	Key string `json:"key,omitempty"`
}

// OpenFileData requests a file by its name or its key. If no file has that key, the first caller
// must make it, and other callers wait for it.
type OpenFileData struct {
	Namespace string `json:"namespace,omitempty"`
	File      string `json:"file,omitempty"`
	Key       string `json:"key,omitempty"`
	// Rewritable accepts a file that its maker can still write to. Otherwise such a file is
	// refused.
	Rewritable bool `json:"rewritable,omitempty"`
}

// OpenFilesData requests files that the connection then holds: all of them, or none. GiveBack names
// files to release. They are released in any case, after the others are opened. Names that the
// connection does not hold are ignored. A file that was opened several times must be released as
// often.
type OpenFilesData struct {
	Namespace string   `json:"namespace,omitempty"`
	Files     []string `json:"files,omitempty"`    // MaxRecordFiles at most
	GiveBack  []string `json:"giveBack,omitempty"` // MaxAskedFiles at most
	// Rewritable accepts files that their makers can still write to.
	Rewritable bool `json:"rewritable,omitempty"`
}

// OpenFilesAnswer comes with Descriptors (SCM_RIGHTS): one for each file, for reading, in the order
// of the request.
type OpenFilesAnswer struct {
	Descriptors int          `json:"descriptors"`
	Files       []OpenedFile `json:"files"`
}

// OpenedFile is one of the opened files.
type OpenedFile struct {
	File       string `json:"file"`
	Bytes      int64  `json:"bytes"`
	Rewritable bool   `json:"rewritable,omitempty"`
}
