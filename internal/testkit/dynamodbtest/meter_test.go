package dynamodbtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/registry"
)

// Reads are counted like DynamoDB bills them: an item by its size, and a query
// by the size of all its items. A transaction costs twice as much for each
// item, and a read that finds nothing costs one unit.
func TestReads(t *testing.T) {
	t.Parallel()
	small, err := Start(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	large := StartLarge("x")
	defer large.Close()
	t.Run("Start", func(t *testing.T) { testReads(t, small) })
	t.Run("StartLarge", func(t *testing.T) { testReads(t, large) })
}

func testReads(t *testing.T, d *Server) {
	table := dynamodb.New(awstest.Config(d.URL), "x")
	// The names of pk, sk, data, revision and schema have 22 bytes, the keys
	// have 2, and each number 1 has 2.
	text, binary := strings.Repeat("x", 4096-28), strings.Repeat("\xff", 4096-27)
	err := table.Write(t.Context(), catalog.Change{Key: catalog.Key{Partition: "p", Sort: "a"}, Data: []byte(text)},
		catalog.Change{Key: catalog.Key{Partition: "p", Sort: "b"}, Data: []byte(binary)})
	if err != nil {
		t.Fatal(err)
	}
	d.Reads()
	for _, test := range []struct {
		sort string
		want Reads
	}{
		{"a", Reads{GetItem: 1, Units: 1, Bytes: 4096}},
		{"b", Reads{GetItem: 1, Units: 2, Bytes: 4097}},
		{"c", Reads{GetItem: 1, Units: 1}},
		{"", Reads{Query: 1, Units: 3, Bytes: 8193}},
		{"a b c", Reads{TransactGetItems: 1, Units: 2 + 4 + 2, Bytes: 8193}},
	} {
		var keys []catalog.Key
		for _, sort := range strings.Fields(test.sort) {
			keys = append(keys, catalog.Key{Partition: "p", Sort: sort})
		}
		var err error
		switch len(keys) {
		case 0:
			_, err = table.Query(t.Context(), catalog.Query{Partition: "p"})
		case 1:
			_, err = table.Get(t.Context(), keys[0])
		default:
			_, err = table.Snapshot(t.Context(), keys...)
		}
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%q: %v", test.sort, err)
		}
		if got := d.Reads(); got != test.want {
			t.Errorf("%q: %+v, want %+v", test.sort, got, test.want)
		}
	}
	if none := d.Reads(); none != (Reads{}) {
		t.Errorf("%+v", none)
	}
}

// A large table is queried in pages of at most 1 MiB, or of fewer items.
func TestPages(t *testing.T) {
	t.Parallel()
	d := StartLarge("x")
	defer d.Close()
	table := dynamodb.New(awstest.Config(d.URL), "x")
	const size = 100 << 10
	for i := range 25 { // a write has at most 4 MiB
		err := table.Write(t.Context(), catalog.Change{
			Key: catalog.Key{Partition: "p", Sort: fmt.Sprintf("a/%02d", 24-i)}, Data: bytes.Repeat([]byte("x"), size),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := table.Write(t.Context(), catalog.Change{Key: catalog.Key{Partition: "p", Sort: "b"}, Data: []byte("x")},
		catalog.Change{Key: catalog.Key{Partition: "q", Sort: "a/00"}, Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		query catalog.Query
		count int
		next  string
	}{
		"first":           {catalog.Query{Partition: "p", Prefix: "a/"}, 10, "a/09"},
		"next":            {catalog.Query{Partition: "p", Prefix: "a/", After: "a/09"}, 10, "a/19"},
		"last":            {catalog.Query{Partition: "p", Prefix: "a/", After: "a/19"}, 5, ""},
		"limit":           {catalog.Query{Partition: "p", Prefix: "a/", After: "a/0", Limit: 2}, 2, "a/01"},
		"without prefix":  {catalog.Query{Partition: "p", After: "a/23"}, 2, ""},
		"after a missing": {catalog.Query{Partition: "p", Prefix: "a/", After: "a/235"}, 1, ""},
		"missing":         {catalog.Query{Partition: "r"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := table.Query(t.Context(), test.query)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Items) != test.count {
				t.Errorf("%d items, want %d", len(page.Items), test.count)
			}
			if page.Next != test.next {
				t.Errorf("the next page begins after %q, want %q", page.Next, test.next)
			}
		})
	}
}

// A read that the SDK sends again counts as one read.
func TestRepeatedReads(t *testing.T) {
	t.Parallel()
	m := &meter{next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"Item":{"pk":{"S":"p"}}}`)
	})}
	for _, attempt := range []string{"attempt=1; max=3", "ttl=20260101T000000Z; attempt=2; max=3", "attempt=3; max=3"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		r.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
		r.Header.Set("Amz-Sdk-Request", attempt)
		m.ServeHTTP(httptest.NewRecorder(), r)
	}
	if got, want := m.take(), (Reads{GetItem: 1, Units: 1, Bytes: 3, Repeated: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A transaction reads either all writes of another transaction or none.
func TestTransactionsAreIsolated(t *testing.T) {
	t.Parallel()
	d, err := Start(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	table := dynamodb.New(awstest.Config(d.URL), "x")
	var keys []catalog.Key
	for i := range 50 {
		keys = append(keys, catalog.Key{Partition: "p", Sort: strconv.Itoa(i)})
	}
	last := len(keys) - 1
	var all sync.WaitGroup
	all.Go(func() {
		for i := range int64(200) {
			data := strconv.AppendInt(nil, i, 10)
			err := table.Write(t.Context(), catalog.Change{Key: keys[0], Data: data, Revision: i},
				catalog.Change{Key: keys[last], Data: data, Revision: i})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 8 { // so that the emulator's own lock changes hands
		all.Go(func() {
			for range 25 {
				items, err := table.Snapshot(t.Context(), keys...)
				if err != nil {
					t.Error(err)
					return
				}
				if a, b := string(items[0].Data), string(items[last].Data); a != b {
					t.Errorf("read %q and %q", a, b)
					return
				}
			}
		})
	}
	all.Wait()
}
