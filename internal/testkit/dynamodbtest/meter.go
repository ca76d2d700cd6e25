package dynamodbtest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
)

// Reads are what has been read of an emulated table, as DynamoDB bills it.
type Reads struct {
	// GetItem, Query and Other count requests; others are writes for the most part.
	GetItem, Query, Other int
	// Units of read capacity: one for each 4 KB that an item has, or all the items of a query together, and one at least, as
	// strongly consistent reads have it.
	Units int
	// Bytes are those of the items that were read.
	Bytes int
}

// meter counts what passes to an emulator of DynamoDB.
type meter struct {
	next http.Handler

	mu    sync.Mutex
	reads Reads
}

func (m *meter) take() Reads {
	m.mu.Lock()
	defer m.mu.Unlock()
	reads := m.reads
	m.reads = Reads{}
	return reads
}

func (m *meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if operation != "GetItem" && operation != "Query" {
		m.mu.Lock()
		m.reads.Other++
		m.mu.Unlock()
		m.next.ServeHTTP(w, r)
		return
	}
	answer := &answerCopy{ResponseWriter: w}
	m.next.ServeHTTP(answer, r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if operation == "Query" {
		m.reads.Query++
	} else {
		m.reads.GetItem++
	}
	size := itemSize(answer.body.Bytes())
	const unit = 4 << 10
	m.reads.Bytes += size
	m.reads.Units += max(1, (size+unit-1)/unit)
}

// answerCopy keeps what is answered.
type answerCopy struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (a *answerCopy) Write(p []byte) (int, error) {
	a.body.Write(p)
	return a.ResponseWriter.Write(p)
}

// itemSize is the size of the items in an answer, by which DynamoDB bills: that of the names and values of their
// attributes.
//
// Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
func itemSize(answer []byte) (size int) {
	type item map[string]struct {
		S string
		B []byte
		N string
	}
	var found struct {
		Item  item
		Items []item
	}
	if json.Unmarshal(answer, &found) != nil {
		return 0 // an error has no items
	}
	for _, i := range append(found.Items, found.Item) {
		for name, value := range i {
			size += len(name) + len(value.S) + len(value.B)
			if value.N != "" {
				size += (len(value.N)+1)/2 + 1
			}
		}
	}
	return size
}
