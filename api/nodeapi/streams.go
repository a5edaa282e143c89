package nodeapi

// This file has the data of the functions for streams. docs/streams.md is the normative text.

// These rules say what the writer does with a consumer that is a whole ring of the partition
// behind.
const (
	SlowWait = "wait" // the writer waits for the consumer, for at most StallMillis
	SlowSkip = "skip" // the consumer continues at the newest record, and learns how many records it missed
)

// These values say where a reader begins if it gives no offset.
const (
	FromKnown    = ""         // the last known position of this consumer or, if that is unknown, the oldest record
	FromEarliest = "earliest" // the oldest existing record
	FromLatest   = "latest"   // the next record to be appended
)

// StreamConfig is the configuration of a stream. It never changes.
type StreamConfig struct {
	Partitions int `json:"partitions,omitempty"` // number of partitions, from 1 to 32; 0 means 1
	// size of an object in bytes, a power of two from 1 KiB to 1 MiB; 0 means 64 KiB
	ObjectBytes int `json:"objectBytes,omitempty"`
	Objects     int `json:"objects,omitempty"` // number of objects in each partition's ring; 0 means 64
	// Slow is SlowWait or SlowSkip. An empty Slow means SlowWait.
	Slow string `json:"slow,omitempty"`
	// StallMillis is the time, in milliseconds, for which the writer waits for a consumer that
	// releases nothing. After it, the consumer continues at a newer record, and the writer does not
	// wait for it again until the consumer has noticed. The value 0 means 30 s.
	StallMillis int `json:"stallMs,omitempty"`
	// KeepMillis is the time, in milliseconds, for which the node keeps the unread records of a
	// named consumer that has disconnected. The value 0 means 30 s.
	KeepMillis int `json:"keepMs,omitempty"`
	// Volatile means that the stream's records do not survive the server's process.
	Volatile bool `json:"volatile,omitempty"`
	// Source is where the records of the stream come from. If it is nil, programs append the
	// records.
	Source *StreamSource `json:"source,omitempty"`
}

// StreamSource names the source of a stream. Exactly one of its fields is set.
type StreamSource struct {
	// Keys fills the stream with commits of the namespace's keys whose names begin with a prefix.
	// Each record is an Event in JSON.
	Keys *KeysSource `json:"keys,omitempty"`
	// Etcd fills the stream with changes of the keys of an etcd. Each record is an EtcdEvent in
	// JSON.
	Etcd *EtcdSource `json:"etcd,omitempty"`
	// JetStream fills the stream with the messages of a stream of NATS JetStream, unchanged.
	JetStream *JetStreamSource `json:"jetstream,omitempty"`
}

// Kind returns the name of the field that is set. It returns "" unless exactly one is set.
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

// KeysSource selects the keys of the namespace whose names begin with a prefix.
type KeysSource struct {
	Prefix string `json:"prefix"`
}

// EtcdSource selects the keys of an etcd that begin with a prefix. The server's operator configures
// the etcd, and the prefixes that each namespace may use.
type EtcdSource struct {
	Prefix string `json:"prefix"`
}

// JetStreamSource selects a stream of NATS JetStream. If Subject is set, it selects only the
// subjects that match it (with NATS's wildcards).
type JetStreamSource struct {
	Stream  string `json:"stream"`
	Subject string `json:"subject,omitempty"`
}

// These are the kinds of an EtcdEvent.
const (
	EtcdPut    = "put"
	EtcdDelete = "delete"
	// EtcdState begins a report of all keys. A put with State follows for each key, and EtcdSynced
	// ends the report. A key that is not in the report does not exist.
	EtcdState  = "state"
	EtcdSynced = "synced"
	// EtcdMissed replaces an event that does not fit into a record, even without its value.
	EtcdMissed = "missed"
)

// EtcdEvent is a record of an EtcdSource.
type EtcdEvent struct {
	Type      string `json:"type"`
	Key       string `json:"key,omitempty"`
	KeyBase64 []byte `json:"keyBase64,omitempty"` // the key in base64, if it is not UTF-8
	// Value or ValueBase64 is the value of a put. If the value does not fit into a record, both are
	// missing, and ValueBytes is its length.
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	ValueBytes  int     `json:"valueBytes,omitempty"`
	// Revision is the etcd revision of the change. For the kinds state and synced, it is the
	// revision of the whole state.
	Revision int64 `json:"revision"`
	// Version is the number of writes of the key since it was created.
	Version int64 `json:"version,omitempty"`
	// More reports that the next record has the same revision.
	More bool `json:"more,omitempty"`
	// State reports that this put is part of a report of all keys, so the key may have been written
	// much earlier.
	State bool `json:"state,omitempty"`
	// Since is set for the kind state. Changes after this revision were not reported one by one.
	// Their number is at most Missed.
	Since  int64 `json:"since,omitempty"`
	Missed int64 `json:"missed,omitempty"`
}

// OpenStreamData requests the description of a stream. It creates the stream if no stream has this
// name.
type OpenStreamData struct {
	Namespace string `json:"namespace,omitempty"`
	Stream    string `json:"stream"`
	// Config is the configuration for a new stream. If the stream exists, its configuration must be
	// the same. If Config is nil, no stream is created, and any configuration is accepted.
	Config *StreamConfig `json:"config,omitempty"`
}

// StreamAnswer describes a stream.
type StreamAnswer struct {
	Stream string `json:"stream"`
	// Incarnation is a random identifier that the stream gets when it is created. An offset is
	// valid only in one incarnation.
	Incarnation string           `json:"incarnation"`
	Made        bool             `json:"made,omitempty"`
	Config      StreamConfig     `json:"config"`
	State       []PartitionState `json:"partitions"`
}

// PartitionState describes a partition. Offsets count its records, from 0.
type PartitionState struct {
	Oldest uint64 `json:"oldest"` // offset of the oldest record that still exists
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

// RecordData is a record to append. The data of a record are bytes, like a key's value.
type RecordData struct {
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Mark        uint64  `json:"mark,omitempty"` // a number that the producer chooses
	// Files are the names of the files that the record refers to, at most MaxRecordFiles. The files
	// exist as long as the record. The stream must be volatile, as files are.
	Files []string `json:"files,omitempty"`
	// Subject and ID are for records of a stream that JetStream stores. Subject is the subject in
	// JetStream. An empty Subject means the source's subject, which must have no wildcards then.
	// JetStream does not store a record if it has seen its ID from this namespace within its window
	// for duplicates.
	Subject string `json:"subject,omitempty"`
	ID      string `json:"id,omitempty"`
}

// AppendData appends records to a partition. The records keep their order.
type AppendData struct {
	StreamData
	Partition int          `json:"partition,omitempty"`
	Records   []RecordData `json:"records"`
	// At makes the append conditional. If the first record would not get the offset At, nothing is
	// appended, and the code is CodeWrongOffset. With At, a partition's only producer appends each
	// record exactly once, even if connections or servers fail.
	At *uint64 `json:"at,omitempty"`
}

// AppendAnswer reports how many records were appended. If it is fewer than requested, these are the
// first records of the request. The server did not append the others because the request timed out
// while the server waited for consumers.
type AppendAnswer struct {
	Offset   uint64 `json:"offset"` // offset of the first record
	Appended int    `json:"appended"`
	// Sequences are the sequence numbers of the records in JetStream, for a stream that JetStream
	// stores. The sequence number is also the mark of the record. Such records are appended to the
	// stream later, so Offset is 0 and has no meaning.
	Sequences []uint64 `json:"sequences,omitempty"`
}

// ReadData requests records of a partition. It is the pull interface.
type ReadData struct {
	StreamData
	Partition int `json:"partition,omitempty"`
	// From is FromKnown, FromEarliest or FromLatest. It is ignored if Offset is given.
	From   string  `json:"from,omitempty"`
	Offset *uint64 `json:"offset,omitempty"`
	// Incarnation, if given, is the incarnation of the stream that Offset refers to.
	Incarnation string `json:"incarnation,omitempty"`
	// Consumer is the name of the consumer. The node keeps the records that this consumer has not
	// read. A read from an offset means that the consumer has finished with all earlier records.
	Consumer   string `json:"consumer,omitempty"`
	MaxRecords int    `json:"maxRecords,omitempty"` // maximum number of records; 0 means 1,024
	// maximum total bytes of values; 0 means 128 KiB, which is the largest that is allowed
	MaxBytes int `json:"maxBytes,omitempty"`
	// WaitMillis is the time in milliseconds to wait if there are no records. The value 0 means not
	// to wait.
	WaitMillis int `json:"waitMs,omitempty"`
}

// ReadAnswer has the requested records, as far as they exist.
type ReadAnswer struct {
	Incarnation string         `json:"incarnation"`
	Offset      uint64         `json:"offset"` // offset of the first record of the answer; offsets are consecutive
	Next        uint64         `json:"next"`   // offset from which to continue with the next read
	Missed      uint64         `json:"missed,omitempty"`
	Records     []StreamRecord `json:"records"`
}

// StreamRecord is a record of a stream.
type StreamRecord struct {
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Mark        uint64  `json:"mark,omitempty"`
	Time        int64   `json:"time"` // when the record was appended, in microseconds since 1970
}

// SubscribeData requests the shared memory of partitions. It is the push interface. It needs a Unix
// socket.
type SubscribeData struct {
	StreamData
	// Partitions are the partitions to read. An empty list means all partitions.
	Partitions []int `json:"partitions,omitempty"`
	// From is FromKnown, FromEarliest or FromLatest. It is ignored if Offsets has an offset for
	// each partition.
	From        string   `json:"from,omitempty"`
	Offsets     []uint64 `json:"offsets,omitempty"`
	Incarnation string   `json:"incarnation,omitempty"`
	// Consumer is the name of the consumer. The node remembers its position, and keeps its unread
	// records for some time after it has disconnected.
	Consumer string `json:"consumer,omitempty"`
	// Skip means that the node does not wait for this consumer when it is slow, but lets it
	// continue at a newer record. It overrides the stream's Slow.
	Skip bool `json:"skip,omitempty"`
}

// SubscribeAnswer comes with Descriptors (SCM_RIGHTS). The first is the descriptor of the cursor
// page. Then follows a descriptor of the segment of each partition, in order. The subscription
// lasts until it is canceled, the connection ends, or the server ends it with an error.
type SubscribeAnswer struct {
	Descriptors int              `json:"descriptors"`
	Incarnation string           `json:"incarnation"`
	Partitions  []PartitionStart `json:"partitions"`
}

// PartitionStart describes a partition's segment, and the position at which a subscription begins.
type PartitionStart struct {
	Partition  int    `json:"partition"`
	Bytes      int    `json:"bytes"`      // size of the segment in bytes
	Generation string `json:"generation"` // a decimal number that identifies the segment
	Object     uint64 `json:"object"`     // number of the first object that the consumer holds
	Offset     uint64 `json:"offset"`     // offset of the first record that the consumer gets
	Missed     uint64 `json:"missed,omitempty"`
}

// These are the limits for files.
const (
	MaxFileBytes   = 1 << 30
	MaxRecordFiles = 64 // maximum number of files that a record may refer to
	MaxAskedFiles  = 1024
)

// MakeFileData makes a file in memory, which one program writes and other programs map:
// docs/streams-arrow.md.
type MakeFileData struct {
	Namespace string `json:"namespace,omitempty"`
	Bytes     int64  `json:"bytes"`
	// Rewritable means that a program that mapped the file for writing can still write to it after
	// it is sealed. So only readers that trust the file's writer should open such a file. They must
	// set Rewritable, too.
	Rewritable bool `json:"rewritable,omitempty"`
}

// FileAnswer comes with Descriptors (SCM_RIGHTS). For a new file, the first is a descriptor for
// writing. The last is always a descriptor for reading. The connection holds the file until the
// request is canceled or the connection ends.
type FileAnswer struct {
	Descriptors int `json:"descriptors"`
	// name of the file; empty if no file has the key, so the caller must make one
	File       string `json:"file,omitempty"`
	Bytes      int64  `json:"bytes,omitempty"`
	Rewritable bool   `json:"rewritable,omitempty"`
}

// RewriteFileData asks which of several rewritable files are free, because no record refers to
// them. The server answers when at least one is free, or after WaitMillis. The writer may then
// change the free files without changing a record that a reader still holds.
type RewriteFileData struct {
	Namespace string   `json:"namespace,omitempty"`
	Files     []string `json:"files"` // names of the files, from 1 to MaxAskedFiles
	// WaitMillis is the time in milliseconds to wait for a free file. The value 0 means not to
	// wait.
	WaitMillis int `json:"waitMs,omitempty"`
}

// RewriteFileAnswer names the files that are free, because no record refers to them.
type RewriteFileAnswer struct {
	Files []string `json:"files"`
}

// SealFileData ends all writing to a file. The program that made the file must have unmapped it.
type SealFileData struct {
	Namespace string `json:"namespace,omitempty"`
	File      string `json:"file"`
	// Key lets other programs find the file until its memory is needed, even if no program holds
	// it. It identifies the source of the content, and how the content was made.
	Key string `json:"key,omitempty"`
}

// OpenFileData requests a file by its name or its key. If no file has that key, the first caller
// must make the file, and other callers wait for it.
type OpenFileData struct {
	Namespace string `json:"namespace,omitempty"`
	File      string `json:"file,omitempty"`
	Key       string `json:"key,omitempty"`
	// Rewritable accepts a file to which the program that made it can still write. Without it, such
	// a file is refused.
	Rewritable bool `json:"rewritable,omitempty"`
}

// OpenFilesData requests several files, which the connection then holds. The server opens all of
// them, or none. GiveBack names files to release. The server releases them in any case, after it
// has opened the requested files. It ignores names that the connection does not hold. A file that
// was opened several times must be released as often.
type OpenFilesData struct {
	Namespace string   `json:"namespace,omitempty"`
	Files     []string `json:"files,omitempty"`    // names of the files to open, at most MaxRecordFiles
	GiveBack  []string `json:"giveBack,omitempty"` // names of the files to release, at most MaxAskedFiles
	// Rewritable accepts files to which the programs that made them can still write.
	Rewritable bool `json:"rewritable,omitempty"`
}

// OpenFilesAnswer comes with Descriptors (SCM_RIGHTS). There is one descriptor for reading for each
// file, in the order of the request.
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
