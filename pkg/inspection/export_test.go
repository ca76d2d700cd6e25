package inspection

import (
	"bufio"
	"context"
	"io"

	"github.com/larder-registry/larder/pkg/docs/extract"
)

// MaxPart is the largest number of bytes of documentation in a message.
const MaxPart = maxPart

// SetDocument replaces the extraction of documentation.
func SetDocument(f func(context.Context, string, map[string][]byte) (extract.Document, error)) {
	document = f
}

// ReceiveDocument reads the documentation that a child sends.
func ReceiveDocument(sent io.Reader) extract.Document {
	return receiveDocument(bufio.NewReaderSize(sent, maxLine))
}
