package dynamodbtest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// Reads are what has been read of an emulated table, as DynamoDB bills it.
type Reads struct {
	// GetItem, TransactGetItems, Query and Other count requests. Others are mostly
	// writes.
	GetItem, TransactGetItems, Query, Other int
	// Repeated counts reads that the SDK sent again. The other fields count each of
	// them once.
	Repeated int
	// Units of read capacity. A strongly consistent read takes one for each 4 KB of
	// an item, or of all the items of a query together, and at least one. A
	// transaction takes twice that for each of its items.
	Units int
	// Bytes are those of the items that were read.
	Bytes int
}

// meter counts what passes to an emulator of DynamoDB. It isolates transactions
// that read: the emulator reads their items one by one, and others write between.
type meter struct {
	next http.Handler
	// reading is held by a transaction that reads, and shared by all others.
	reading sync.RWMutex

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
	if operation == "TransactGetItems" {
		m.reading.Lock()
		defer m.reading.Unlock()
	} else {
		m.reading.RLock()
		defer m.reading.RUnlock()
	}
	switch operation {
	case "GetItem", "TransactGetItems", "Query":
	default:
		m.mu.Lock()
		m.reads.Other++
		m.mu.Unlock()
		m.next.ServeHTTP(w, r)
		return
	}
	recorded := httptest.NewRecorder()
	m.next.ServeHTTP(recorded, r)
	if isRepeated(r) {
		m.mu.Lock()
		m.reads.Repeated++
		m.mu.Unlock()
	} else {
		m.count(operation, recorded.Body.Bytes())
	}
	maps.Copy(w.Header(), recorded.Header())
	w.WriteHeader(recorded.Code)
	_, _ = recorded.Body.WriteTo(w) // the client may have gone
}

// isRepeated reports whether the SDK sends a request again, because it has waited
// too long for the response. On a busy machine it does.
func isRepeated(r *http.Request) bool {
	_, attempt, found := strings.Cut(r.Header.Get("Amz-Sdk-Request"), "attempt=")
	attempt, _, _ = strings.Cut(attempt, ";")
	return found && attempt != "1"
}

// count counts a read and its response. It must be called before the response is
// sent: a client that has the response may call take at once.
func (m *meter) count(operation string, response []byte) {
	var found answer
	if json.Unmarshal(response, &found) != nil {
		found = answer{} // an error has no items
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch operation {
	case "TransactGetItems":
		m.reads.TransactGetItems++
		for _, response := range found.Responses {
			m.reads.add(2, response.Item.size())
		}
	case "Query":
		m.reads.Query++
		size := 0
		for _, i := range found.Items {
			size += i.size()
		}
		m.reads.add(1, size)
	case "GetItem":
		m.reads.GetItem++
		m.reads.add(1, found.Item.size())
	}
}

// add counts a read, of which each 4 KB costs some units.
func (r *Reads) add(units, size int) {
	const unit = 4 << 10
	r.Bytes += size
	r.Units += units * max(1, (size+unit-1)/unit)
}

// answer is what DynamoDB answers to a read.
type answer struct {
	Item      item                  // of GetItem
	Items     []item                // of Query
	Responses []struct{ Item item } // of TransactGetItems
}

// item has the attributes of an item, by their names.
type item map[string]struct {
	S string
	B []byte
	N string
}

// size is the size of an item by which DynamoDB bills: that of the names and
// values of its attributes.
//
// Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
func (i item) size() (size int) {
	for name, value := range i {
		size += len(name) + len(value.S) + len(value.B)
		if value.N != "" {
			size += (len(value.N)+1)/2 + 1
		}
	}
	return size
}
