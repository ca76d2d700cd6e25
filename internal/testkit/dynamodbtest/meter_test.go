package dynamodbtest

import (
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
)

// Reads are counted as DynamoDB bills them: an item by its size, a query by that of all its items, and nothing as one unit.
func TestReads(t *testing.T) {
	t.Parallel()
	d, err := Start(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	table := dynamodb.New(awstest.Config(d.URL), "x")
	// pk, sk, data and revision have 16 bytes in their names, 2 in the keys, and 2 in the number 1.
	text, binary := strings.Repeat("x", 4096-20), strings.Repeat("\xff", 4096-19)
	err = table.Write(t.Context(), catalog.Change{Key: catalog.Key{Partition: "p", Sort: "a"}, Data: []byte(text)}, catalog.Change{Key: catalog.Key{Partition: "p", Sort: "b"}, Data: []byte(binary)})
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
	} {
		if test.sort == "" {
			_, _ = table.Query(t.Context(), catalog.Query{Partition: "p"})
		} else {
			_, _ = table.Get(t.Context(), catalog.Key{Partition: "p", Sort: test.sort})
		}
		if got := d.Reads(); got != test.want {
			t.Errorf("%q: %+v, want %+v", test.sort, got, test.want)
		}
	}
	if none := d.Reads(); none != (Reads{}) {
		t.Errorf("%+v", none)
	}
}
