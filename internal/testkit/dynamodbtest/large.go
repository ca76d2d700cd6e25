package dynamodbtest

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// maxPage is the largest size in bytes of the items in one page of a query.
//
// Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Query.Pagination.html
const maxPage = 1 << 20

// StartLarge starts an emulator of a table with many items. It is faster than
// the one of [Start], which compares every item of the table in each query. Its
// queries have pages of the same size as those of DynamoDB.
//
// It has only the operations that read, and writes without conditions. The
// caller closes it.
func StartLarge(table string) *Server {
	l := &large{meter: &meter{}, partitions: make(map[string][]stored)}
	server := httptest.NewServer(l)
	return &Server{URL: server.URL, table: table, server: server, meter: l.meter}
}

// large is the handler of an emulator of a table with many items.
type large struct {
	meter *meter

	mu         sync.RWMutex
	partitions map[string][]stored // each is sorted
}

// stored is an item as DynamoDB's API has it. Its size is the one for which
// DynamoDB bills.
type stored struct {
	sort string
	json json.RawMessage
	size int
}

// single is a response with one item, or with none.
type single struct {
	Item json.RawMessage `json:",omitempty"`
}

// page is the response to a query.
type page struct {
	Count            int
	Items            []json.RawMessage
	LastEvaluatedKey item `json:",omitempty"`
}

// input has the fields of all requests.
type input struct {
	Key           item // of GetItem
	TransactItems []struct {
		Get struct{ Key item }
		Put *struct{ Item json.RawMessage }
	}
	ExpressionAttributeValues item // of Query
	ExclusiveStartKey         item
	Limit                     int
}

func (l *large) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in input
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	out, reads, err := l.serve(operation, in)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if isRepeated(r) {
		reads = Reads{Repeated: 1}
	}
	l.meter.merge(reads)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_ = json.NewEncoder(w).Encode(out) // the client may have closed the connection
}

var errUnsupported = errors.New("the emulator does not support this operation")

func (l *large) serve(operation string, in input) (out any, reads Reads, err error) {
	if operation == "TransactWriteItems" {
		return struct{}{}, Reads{Other: 1}, l.write(in)
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch operation {
	case "GetItem":
		found := l.get(in.Key)
		reads.GetItem = 1
		reads.add(1, found.size)
		return single{found.json}, reads, nil
	case "TransactGetItems":
		var all struct{ Responses []single }
		for _, i := range in.TransactItems {
			found := l.get(i.Get.Key)
			reads.add(2, found.size)
			all.Responses = append(all.Responses, single{found.json})
		}
		reads.TransactGetItems = 1
		return all, reads, nil
	case "Query":
		found, size := l.query(in)
		reads.Query = 1
		reads.add(1, size)
		return found, reads, nil
	}
	return nil, reads, errUnsupported
}

func (l *large) get(k item) stored {
	partition := l.partitions[k["pk"].S]
	at, found := find(partition, k["sk"].S)
	if !found {
		return stored{}
	}
	return partition[at]
}

func find(partition []stored, sort string) (at int, found bool) {
	return slices.BinarySearchFunc(partition, sort, func(s stored, sort string) int { return strings.Compare(s.sort, sort) })
}

func (l *large) query(in input) (p page, size int) {
	name, prefix := in.ExpressionAttributeValues[":pk"], in.ExpressionAttributeValues[":sk"].S
	partition := l.partitions[name.S]
	at, _ := find(partition, prefix)
	start := cmp.Or(in.ExclusiveStartKey["sk"].S, in.ExpressionAttributeValues[":after"].S)
	if start >= prefix && start != "" {
		var found bool
		if at, found = find(partition, start); found {
			at++
		}
	}
	p.Items = []json.RawMessage{}
	for i, s := range partition[at:] {
		if !strings.HasPrefix(s.sort, prefix) {
			break
		}
		if i > 0 && (size+s.size > maxPage || i == in.Limit) {
			p.LastEvaluatedKey = item{"pk": name, "sk": {S: partition[at+i-1].sort}}
			break
		}
		p.Items, size = append(p.Items, s.json), size+s.size
	}
	p.Count = len(p.Items)
	return p, size
}

func (l *large) write(in input) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range in.TransactItems {
		if i.Put == nil {
			return errUnsupported
		}
		var attributes item
		if err := json.Unmarshal(i.Put.Item, &attributes); err != nil {
			return err
		}
		s := stored{attributes["sk"].S, i.Put.Item, attributes.size()}
		name := attributes["pk"].S
		at, found := find(l.partitions[name], s.sort)
		if found {
			l.partitions[name][at] = s
			continue
		}
		l.partitions[name] = slices.Insert(l.partitions[name], at, s)
	}
	return nil
}
