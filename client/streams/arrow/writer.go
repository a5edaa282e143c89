package streamsarrow

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
)

// Inline is the maximum size of buffers outside of files that a Writer with files puts into the
// record.
const Inline = 4096

// Writer appends batches to a partition of a stream.
//
// Without Files a whole batch is one record: the Writer copies it into the record, and the node
// copies the record into the stream's memory. With Files, which need a volatile stream, the record
// refers to buffers that are in files. Other buffers are copied into a new file, or into the record
// if they have at most Inline bytes.
type Writer struct {
	Client    *node.Client
	Stream    string
	Namespace string // namespace of the stream and of Files. "": the client's
	Partition int
	Files     *Files
	// Inline replaces the constant, if it is not 0. Negative: nothing is inline.
	Inline int

	schema  *arrow.Schema // schema of the previous batch
	message []byte        // its encoded message
}

// Append appends a batch, and returns its offset. The caller keeps the batch. A Writer is for one
// goroutine.
func (w *Writer) Append(ctx context.Context, batch arrow.RecordBatch) (offset uint64, err error) {
	if batch.Schema() != w.schema {
		message, err := writeSchema(batch.Schema())
		if err != nil {
			return 0, err
		}
		w.schema, w.message = batch.Schema(), message
	}
	d := nodeapi.AppendData{StreamData: nodeapi.StreamData{Namespace: w.Namespace, Stream: w.Stream},
		Partition: w.Partition,
		Records:   make([]nodeapi.RecordData, 1)}
	if w.Files == nil {
		e, err := encode(batch, w.message, nowhere)
		if err != nil {
			return 0, err
		}
		d.Records[0].ValueBase64 = e.record()
	} else {
		inline := w.Inline
		if inline == 0 {
			inline = Inline
		}
		record, used, err := w.Files.write(ctx, batch, w.message, max(inline, 0))
		if err != nil {
			return 0, err
		}
		defer letGo(used) // the files are held until the append, after which the record holds them
		d.Records[0].ValueBase64 = record
		for _, m := range used {
			d.Records[0].Files = append(d.Records[0].Files, m.Name())
		}
	}
	a, err := w.Client.Append(ctx, d)
	if err != nil {
		return 0, err
	}
	if a.Appended != 1 {
		return 0, nodeapi.Errorf(nodeapi.CodeTimeout, "try again", "consumers were waited for in vain")
	}
	return a.Offset, nil
}
