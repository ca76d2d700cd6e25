package dynamodb_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/registry"
)

// config reaches a service at a URL, and does not try again.
func config(url string) aws.Config {
	c := awstest.Config(url)
	c.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	return c
}

func open(t *testing.T) (*dynamodb.Table, aws.Config) {
	t.Helper()
	emulator, err := dynamodbtest.Start(t.Context(), "larder")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emulator.Close)
	return dynamodb.New(config(emulator.URL), "larder"), config(emulator.URL)
}

func TestTable(t *testing.T) {
	t.Parallel()
	var configs sync.Map // of each table
	tabletest.Run(t, tabletest.Backend{
		Open: func(t *testing.T) catalog.Table {
			table, c := open(t)
			configs.Store(table, c)
			return table
		},
		Put: func(t *testing.T, table catalog.Table, k catalog.Key, schema int64) {
			c, _ := configs.Load(table)
			item := map[string]types.AttributeValue{
				"pk": &types.AttributeValueMemberS{Value: k.Partition}, "sk": &types.AttributeValueMemberS{Value: k.Sort},
				"revision": &types.AttributeValueMemberN{Value: "1"}, "data": &types.AttributeValueMemberS{Value: "x"},
			}
			if schema > 0 {
				item["schema"] = &types.AttributeValueMemberN{Value: strconv.FormatInt(schema, 10)}
			}
			in := &awsdynamodb.PutItemInput{TableName: aws.String("larder"), Item: item}
			if _, err := awsdynamodb.NewFromConfig(c.(aws.Config)).PutItem(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// JSON can be read in the console.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	table, c := open(t)
	for sort, data := range map[string]string{"json": `{"a":1}`, "gzip": "\x1f\x8b\x00"} {
		if err := table.Write(t.Context(), catalog.Change{Key: catalog.Key{Partition: "p", Sort: sort}, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
		out, err := awsdynamodb.NewFromConfig(c).GetItem(t.Context(), &awsdynamodb.GetItemInput{TableName: aws.String("larder"), Key: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "p"}, "sk": &types.AttributeValueMemberS{Value: sort},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, isText := out.Item["data"].(*types.AttributeValueMemberS); isText != (sort == "json") {
			t.Errorf("%s is stored as %T", sort, out.Item["data"])
		}
	}
}

// A table that cannot answer is unavailable, which clients retry; what will not get better is not.
func TestErrors(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("0123456789abcdef", 4)
	change := catalog.Change{Key: catalog.Key{Partition: "tokens", Sort: digest}, Data: []byte("x")}
	for body, test := range map[string]struct {
		status int
		want   error
	}{
		`{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}`: {400, registry.ErrUnavailable},
		`{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}`:                    {400, registry.ErrUnavailable},
		`{"__type":"com.amazonaws.dynamodb.v20120810#RequestLimitExceeded"}`:                   {400, registry.ErrUnavailable},
		`{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}`:                    {500, registry.ErrUnavailable},
		`nonsense`: {503, registry.ErrUnavailable},
		`{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException"}`:                                                                        {400, registry.ErrConflict},
		`{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","CancellationReasons":[{"Code":"None"},{"Code":"TransactionConflict"}]}`: {400, registry.ErrConflict},
		`{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","CancellationReasons":[{"Code":"ThrottlingError"}]}`:                     {400, registry.ErrUnavailable},
		`{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}`:                                                                           {400, nil},
		`{"__type":"com.amazonaws.dynamodb.v20120810#AccessDeniedException"}`:                                                                               {400, nil},
		`{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","CancellationReasons":[{"Code":"ValidationError"}]}`:                     {400, nil},
	} {
		broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte(body))
		}))
		table := dynamodb.New(config(broken.URL), "larder")
		errs := []error{table.Write(t.Context(), change)}
		_, err := table.Get(t.Context(), change.Key)
		errs = append(errs, err)
		_, err = table.Query(t.Context(), catalog.Query{Partition: "p"})
		errs = append(errs, err)
		_, err = table.Snapshot(t.Context(), change.Key)
		errs = append(errs, err)
		for _, err := range errs {
			if err != nil && strings.Contains(err.Error(), digest[:13]) {
				t.Errorf("it names all of a token's digest: %v", err)
			}
			for _, sentinel := range []error{registry.ErrUnavailable, registry.ErrConflict, registry.ErrNotFound, registry.ErrInvalid} {
				wanted := test.want != nil && errors.Is(test.want, sentinel)
				if err == nil || errors.Is(err, sentinel) != wanted {
					t.Errorf("%s: %v", body, err)
				}
			}
		}
		broken.Close()
		if _, err := table.Get(t.Context(), change.Key); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("nobody answers: %v", err)
		}
	}
	end := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	defer slow.Close()
	defer close(end)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := dynamodb.New(config(slow.URL), "larder").Get(ctx, change.Key); !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("too slow: %v", err)
	}
}

// An item that cannot be decoded is named, also where it keeps something else from
// being done, with what to do.
func TestDamagedItem(t *testing.T) {
	t.Parallel()
	table, c := open(t)
	digest := strings.Repeat("0123456789abcdef", 4)
	in := &awsdynamodb.PutItemInput{TableName: aws.String("larder"), Item: map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "tokens"}, "sk": &types.AttributeValueMemberS{Value: digest},
		"revision": &types.AttributeValueMemberN{Value: "1"}, "schema": &types.AttributeValueMemberN{Value: "1"},
	}}
	if _, err := awsdynamodb.NewFromConfig(c).PutItem(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	other := strings.Repeat("f", 64)
	err := catalog.New(table).AddToken(t.Context(), other, registry.Token{ID: registry.TokenID(other), Name: "ci"})
	if !errors.Is(err, registry.ErrCorrupt) || !strings.Contains(err.Error(), "cannot decode item tokens "+digest[:12]+": ") {
		t.Errorf("%v", err)
	}
	if hint := registry.Hint(err); !strings.Contains(hint, "from a backup") || !strings.Contains(hint, "`larder verify`") {
		t.Errorf("hint %q", hint)
	}
	if err != nil && strings.Contains(err.Error()+registry.Hint(err), digest[:13]) {
		t.Errorf("it names all of a token's digest: %v", err)
	}
}

// A throttled transaction is repeated, as the SDK does with single reads, and one
// that was refused is not.
func TestThrottledTransactions(t *testing.T) {
	t.Parallel()
	for reasons, want := range map[string]int64{
		`[{"Code":"None"},{"Code":"ThrottlingError"}]`:                   3,
		`[{"Code":"ProvisionedThroughputExceeded"}]`:                     3,
		`[{"Code":"ThrottlingError"},{"Code":"ConditionalCheckFailed"}]`: 1,
		`[{"Code":"TransactionConflict"},{"Code":"None"}]`:               1,
		`[{"Code":"ValidationError"}]`:                                   1,
		`[]`:                                                             1,
	} {
		var requests atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","CancellationReasons":` + reasons + `}`))
		}))
		c := config(server.URL)
		c.Retryer = func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
		}
		table := dynamodb.New(c, "larder")
		if _, err := table.Snapshot(t.Context(), catalog.Key{Partition: "p", Sort: "s"}); err == nil || requests.Load() != want {
			t.Errorf("%s: Snapshot sends %d requests, want %d: %v", reasons, requests.Load(), want, err)
		}
		requests.Store(0)
		change := catalog.Change{Key: catalog.Key{Partition: "p", Sort: "s"}, Data: []byte("x")}
		if err := table.Write(t.Context(), change); err == nil || requests.Load() != want {
			t.Errorf("%s: Write sends %d requests, want %d: %v", reasons, requests.Load(), want, err)
		}
		server.Close()
	}
}
