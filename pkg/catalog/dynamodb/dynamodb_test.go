package dynamodb_test

import (
	"context"
	"errors"
	"io"
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
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/registry"
)

// config returns a configuration for a service at a URL, without retries.
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
	var configs sync.Map // the configuration of each table
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

// JSON is stored as text, so that it can be read in the console.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	table, c := open(t)
	for sort, data := range map[string]string{"json": `{"a":1}`, "gzip": "\x1f\x8b\x00"} {
		change := catalog.Change{Key: catalog.Key{Partition: "p", Sort: sort}, Data: []byte(data)}
		if err := table.Write(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		out, err := awsdynamodb.NewFromConfig(c).GetItem(t.Context(), &awsdynamodb.GetItemInput{
			TableName: aws.String("larder"),
			Key: map[string]types.AttributeValue{
				"pk": &types.AttributeValueMemberS{Value: "p"}, "sk": &types.AttributeValueMemberS{Value: sort},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, isText := out.Item["data"].(*types.AttributeValueMemberS); isText != (sort == "json") {
			t.Errorf("%s is stored as %T", sort, out.Item["data"])
		}
	}
}

// Reads return what the last write stored.
func TestConsistentReads(t *testing.T) {
	t.Parallel()
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		body = string(sent)
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	table := dynamodb.New(config(server.URL), "larder")
	for name, read := range map[string]func() error{
		"Get": func() error {
			_, err := table.Get(t.Context(), catalog.Key{Partition: "p", Sort: "s"})
			return err
		},
		"Query": func() error {
			_, err := table.Query(t.Context(), catalog.Query{Partition: "p"})
			return err
		},
	} {
		if err := read(); err != nil && !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(body, `"ConsistentRead":true`) {
			t.Errorf("%s sends %s", name, body)
		}
	}
}

// cancelled returns the response for a transaction that was cancelled for
// reasons.
func cancelled(reasons string) string {
	return `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","CancellationReasons":` +
		reasons + `}`
}

// If the table cannot answer now, the error is ErrUnavailable, which clients
// retry. Permanent errors are not.
func TestErrors(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("0123456789abcdef", 4)
	change := catalog.Change{Key: catalog.Key{Partition: "tokens", Sort: digest}, Data: []byte("x")}
	fault := func(name string) string { return `{"__type":"com.amazonaws.dynamodb.v20120810#` + name + `"}` }
	for body, test := range map[string]struct {
		status int
		want   error
	}{
		fault("ProvisionedThroughputExceededException"):               {400, registry.ErrUnavailable},
		fault("ThrottlingException"):                                  {400, registry.ErrUnavailable},
		fault("RequestLimitExceeded"):                                 {400, registry.ErrUnavailable},
		fault("InternalServerError"):                                  {500, registry.ErrUnavailable},
		`nonsense`:                                                    {503, registry.ErrUnavailable},
		fault("TransactionConflictException"):                         {400, registry.ErrConflict},
		cancelled(`[{"Code":"None"},{"Code":"TransactionConflict"}]`): {400, registry.ErrConflict},
		cancelled(`[{"Code":"ThrottlingError"}]`):                     {400, registry.ErrUnavailable},
		fault("ResourceNotFoundException"):                            {400, nil},
		fault("AccessDeniedException"):                                {400, nil},
		cancelled(`[{"Code":"ValidationError"}]`):                     {400, nil},
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
				t.Errorf("the error has the whole digest of a token: %v", err)
			}
			for _, sentinel := range []error{
				registry.ErrUnavailable, registry.ErrConflict, registry.ErrNotFound, registry.ErrInvalid,
			} {
				wanted := test.want != nil && errors.Is(test.want, sentinel)
				if err == nil || errors.Is(err, sentinel) != wanted {
					t.Errorf("%s: %v", body, err)
				}
			}
		}
		broken.Close()
		if _, err := table.Get(t.Context(), change.Key); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("without a server: %v", err)
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

// The error for an item that cannot be decoded names the item and has a hint.
// That is also the case if the item is in the way of another task.
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
	if !errors.Is(err, registry.ErrCorrupt) {
		t.Fatalf("%v, want ErrCorrupt", err)
	}
	if item := "item tokens " + digest[:12] + ": "; !strings.Contains(err.Error(), item) {
		t.Errorf("%v, want an error with %s", err, item)
	}
	if hint := registry.Hint(err); !strings.Contains(hint, "`larder verify`") {
		t.Errorf("hint %q, want one with a command", hint)
	}
	if strings.Contains(err.Error()+registry.Hint(err), digest[:13]) {
		t.Errorf("the error has the whole digest of a token: %v", err)
	}
	golden.New(t).Error(t, err)
}

// A throttled transaction is retried, as the SDK does with single reads. A
// rejected transaction is not.
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
			_, _ = w.Write([]byte(cancelled(reasons)))
		}))
		c := config(server.URL)
		c.Retryer = func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
		}
		table := dynamodb.New(c, "larder")
		_, err := table.Snapshot(t.Context(), catalog.Key{Partition: "p", Sort: "s"})
		if err == nil || requests.Load() != want {
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
