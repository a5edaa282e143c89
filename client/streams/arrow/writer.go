package streamsarrow

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
)

// Inline is the maximum total size of the buffers that a Writer puts into a record itself. It
// applies to a Writer with Files, and to buffers that are not in files.
const Inline = 4096

// Writer appends batches to a partition of a stream.
//
// Without Files, the Writer copies the whole batch into a record, and the node copies the record
// into the stream's memory. With Files, the record refers to the buffers that are in files, and the
// stream must be volatile. Other buffers are copied into a new file, or into the record if they
// have at most Inline bytes.
type Writer struct {
	Client    *node.Client
	Stream    string
	Namespace string // namespace of the stream and of Files; "" means the client's namespace
	Partition int
	Files     *Files
	// Inline, if it is not 0, replaces the constant Inline. If it is negative, no buffers are in
	// the record itself.
	Inline int

	schema  *arrow.Schema // schema of the previous batch
	message []byte        // encoded message of that schema
}

// Append appends a batch, and returns its offset. The caller must still release the batch. Only one
// goroutine at a time may use a Writer.
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
		// the node must hold the files until the append, after which the record holds them
		defer letGo(used)
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
