package dynamodbtest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// Reads are the reads of an emulated table, in the units of DynamoDB's bill.
type Reads struct {
	// GetItem, TransactGetItems, Query and Other count requests. Other ones are
	// mostly writes.
	GetItem, TransactGetItems, Query, Other int
	// Repeated counts reads that the SDK sent again. The other fields count each of
	// them once.
	Repeated int
	// Units is the read capacity. A strongly consistent read takes one unit for
	// each 4 KB, and at least one. The items of a query count together. A
	// transaction takes twice as many for each of its items.
	Units int
	// Bytes is the size of the items that were read.
	Bytes int
}

// meter counts the requests to an emulator of DynamoDB. It isolates
// transactions that read. The emulator reads their items one by one, so that
// others could write between them.
type meter struct {
	next http.Handler
	// reading is locked by a transaction that reads, and shared by all other
	// requests.
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

func (m *meter) merge(r Reads) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads.GetItem += r.GetItem
	m.reads.TransactGetItems += r.TransactGetItems
	m.reads.Query += r.Query
	m.reads.Other += r.Other
	m.reads.Repeated += r.Repeated
	m.reads.Units += r.Units
	m.reads.Bytes += r.Bytes
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
		m.merge(Reads{Other: 1})
		m.next.ServeHTTP(w, r)
		return
	}
	recorded := httptest.NewRecorder()
	m.next.ServeHTTP(recorded, r)
	if isRepeated(r) {
		m.merge(Reads{Repeated: 1})
	} else {
		m.count(operation, recorded.Body.Bytes())
	}
	maps.Copy(w.Header(), recorded.Header())
	w.WriteHeader(recorded.Code)
	_, _ = recorded.Body.WriteTo(w) // the client may have closed the connection
}

// isRepeated reports whether the SDK sends a request again, because it has waited
// too long for the response. On a busy machine it does.
func isRepeated(r *http.Request) bool {
	_, attempt, found := strings.Cut(r.Header.Get("Amz-Sdk-Request"), "attempt=")
	attempt, _, _ = strings.Cut(attempt, ";")
	return found && attempt != "1"
}

// count counts a read and its response. Call it before the response is sent,
// since the client may then call take at once.
func (m *meter) count(operation string, response []byte) {
	var found answer
	if json.Unmarshal(response, &found) != nil {
		found = answer{} // an error response has no items
	}
	var reads Reads
	switch operation {
	case "TransactGetItems":
		reads.TransactGetItems = 1
		for _, response := range found.Responses {
			reads.add(2, response.Item.size())
		}
	case "Query":
		reads.Query = 1
		size := 0
		for _, i := range found.Items {
			size += i.size()
		}
		reads.add(1, size)
	case "GetItem":
		reads.GetItem = 1
		reads.add(1, found.Item.size())
	}
	m.merge(reads)
}

// add counts a read that costs a number of units for each 4 KB.
func (r *Reads) add(units, size int) {
	const unit = 4 << 10
	r.Bytes += size
	r.Units += units * max(1, (size+unit-1)/unit)
}

// answer is DynamoDB's response to a read.
type answer struct {
	Item      item                  // of GetItem
	Items     []item                // of Query
	Responses []struct{ Item item } // of TransactGetItems
}

// item has the attributes of an item, by name.
type item map[string]struct {
	S string `json:",omitempty"`
	B []byte `json:",omitempty"`
	N string `json:",omitempty"`
}

// size returns the size of an item for which DynamoDB bills: the size of the
// names and values of its attributes.
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
