package streamsarrow

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
)

// Inline is how many bytes of buffers that are in no file go into a record of a Writer with files.
const Inline = 4096

// Writer appends batches to a partition of a stream.
//
// Without Files a whole batch is one record: it is copied into the record, and by the node into the
// stream's memory. With Files, which need a volatile stream, the record refers to buffers that are
// in files; others are copied into a new file, unless they have no more bytes than Inline.
type Writer struct {
	Client    *node.Client
	Stream    string
	Namespace string // of the stream, and of Files. "": the client's
	Partition int
	Files     *Files
	// Inline is in place of the constant, if it is not 0. Negative: nothing is inline.
	Inline int

	schema  *arrow.Schema // of the batch before
	message []byte        // as it is sent
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
		defer letGo(used) // until then they are held: the record refers to them from its append on
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
