// Package dynamodb implements [catalog.Table] on a DynamoDB table with the
// string keys pk and sk.
//
// Reads are strongly consistent. A write is one TransactWriteItems with a
// condition on each item. JSON is stored as text, so that it can be read in the
// console. Other data is stored as binary.
package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// The attributes of an item.
const (
	attrPartition = "pk"
	attrSort      = "sk"
	attrRevision  = "revision"
	attrData      = "data"
	attrSchema    = "schema"
	attrExpires   = settings.TTLAttribute
)

// Table is a catalog.Table in DynamoDB.
type Table struct {
	// A client of the SDK here would add its 62 operations to the functions
	// whose templates call methods by name. Four are needed.
	getItem            operation[dynamodb.GetItemInput, dynamodb.GetItemOutput]
	query              operation[dynamodb.QueryInput, dynamodb.QueryOutput]
	transactGetItems   operation[dynamodb.TransactGetItemsInput, dynamodb.TransactGetItemsOutput]
	transactWriteItems operation[dynamodb.TransactWriteItemsInput, dynamodb.TransactWriteItemsOutput]

	name string
	now  func() time.Time
}

// operation is a method of the SDK's client.
type operation[I, O any] = func(context.Context, *I, ...func(*dynamodb.Options)) (*O, error)

var _ catalog.Table = (*Table)(nil)

// New returns the table with a name.
func New(config aws.Config, name string) *Table {
	client := dynamodb.NewFromConfig(config, func(o *dynamodb.Options) {
		// The SDK verifies the checksum only when it closes a body, and drops
		// the error.
		o.DisableValidateResponseChecksum = true
		o.APIOptions = append(o.APIOptions, verifyChecksum)
		o.Retryer = retryer{o.Retryer}
	})
	return &Table{
		getItem: client.GetItem, query: client.Query,
		transactGetItems: client.TransactGetItems, transactWriteItems: client.TransactWriteItems,
		name: name, now: time.Now,
	}
}

// retryer also retries a transaction that was throttled, which the SDK treats
// as one that was rejected.
type retryer struct{ aws.Retryer }

func (r retryer) IsErrorRetryable(err error) bool {
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		return r.Retryer.IsErrorRetryable(err)
	}
	throttled := false
	for _, reason := range cancelled.CancellationReasons {
		switch aws.ToString(reason.Code) {
		case "ThrottlingError", "ProvisionedThroughputExceeded":
			throttled = true
		case "None", "":
		default:
			return false
		}
	}
	return throttled
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func primaryKey(k catalog.Key) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{attrPartition: text(k.Partition), attrSort: text(k.Sort)}
}

// Get implements [catalog.Table].
func (t *Table) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	out, err := t.getItem(ctx, &dynamodb.GetItemInput{
		TableName: &t.name, Key: primaryKey(k), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return catalog.Item{}, fmt.Errorf("table %s: cannot read %s: %w", t.name, k.Shown(), translate(err))
	}
	if out.Item != nil {
		item, err := decode(out.Item)
		if err != nil || !t.expired(item) {
			return item, err
		}
	}
	return catalog.Item{}, fmt.Errorf("item %s: %w", k.Shown(), registry.ErrNotFound)
}

// Snapshot implements [catalog.Table] with one TransactGetItems.
func (t *Table) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	if err := catalog.CheckKeys(keys); err != nil {
		return nil, err
	}
	in := &dynamodb.TransactGetItemsInput{TransactItems: make([]types.TransactGetItem, len(keys))}
	for i, k := range keys {
		in.TransactItems[i] = types.TransactGetItem{Get: &types.Get{TableName: &t.name, Key: primaryKey(k)}}
	}
	out, err := t.transactGetItems(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("table %s: cannot read %s and %d more: %w",
			t.name, keys[0].Shown(), len(keys)-1, translate(err))
	}
	if len(out.Responses) != len(keys) {
		return nil, fmt.Errorf("table %s: %w: it returns %d of %d items",
			t.name, registry.ErrUnavailable, len(out.Responses), len(keys))
	}
	items := make([]catalog.Item, len(keys))
	for i, response := range out.Responses {
		if response.Item != nil {
			if items[i], err = decode(response.Item); err != nil {
				return nil, err
			}
		}
		if response.Item == nil || t.expired(items[i]) {
			items[i] = catalog.Item{Key: keys[i]}
		}
	}
	return items, nil
}

// expired reports whether an item has expired. DynamoDB can take days to remove
// it.
func (t *Table) expired(item catalog.Item) bool {
	return !item.Expires.IsZero() && item.Expires.Unix() <= t.now().Unix()
}

// Query implements [catalog.Table].
func (t *Table) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	in := &dynamodb.QueryInput{
		TableName:                 &t.name,
		ConsistentRead:            aws.Bool(true),
		KeyConditionExpression:    aws.String("#pk = :pk"),
		ExpressionAttributeNames:  map[string]string{"#pk": attrPartition},
		ExpressionAttributeValues: map[string]types.AttributeValue{":pk": text(q.Partition)},
	}
	switch {
	case q.Prefix != "": // begins_with does not allow an empty prefix
		in.KeyConditionExpression = aws.String("#pk = :pk AND begins_with(#sk, :sk)")
		in.ExpressionAttributeNames["#sk"] = attrSort
		in.ExpressionAttributeValues[":sk"] = text(q.Prefix)
		if q.After != "" {
			in.ExclusiveStartKey = primaryKey(catalog.Key{Partition: q.Partition, Sort: q.After})
		}
	case q.After != "": // which need not exist
		in.KeyConditionExpression = aws.String("#pk = :pk AND #sk > :after")
		in.ExpressionAttributeNames["#sk"] = attrSort
		in.ExpressionAttributeValues[":after"] = text(q.After)
	}
	if q.Limit > 0 {
		in.Limit = aws.Int32(int32(min(q.Limit, 1000)))
	}
	out, err := t.query(ctx, in)
	if err != nil {
		return catalog.Page{}, fmt.Errorf("table %s: cannot query %s: %w", t.name, q.Partition, translate(err))
	}
	var page catalog.Page
	for _, attributes := range out.Items {
		item, err := decode(attributes)
		if err != nil {
			return catalog.Page{}, err
		}
		if !t.expired(item) {
			page.Items = append(page.Items, item)
		}
	}
	if last, ok := out.LastEvaluatedKey[attrSort].(*types.AttributeValueMemberS); ok {
		page.Next = last.Value
	}
	return page, nil
}

// decode decodes an item. It returns [registry.ErrSchema] for an item of
// another release. It returns [registry.ErrCorrupt] with a hint for an item
// that no release has written.
func decode(attributes map[string]types.AttributeValue) (catalog.Item, error) {
	item, err := decodeItem(attributes)
	if errors.Is(err, registry.ErrCorrupt) {
		err = registry.WithHint(err, "Restore this item from a backup of the table, or delete it. "+
			"After that, `larder verify` lists any other damaged or missing data.")
	}
	return item, err
}

func decodeItem(attributes map[string]types.AttributeValue) (catalog.Item, error) {
	var item catalog.Item
	pk, okPK := attributes[attrPartition].(*types.AttributeValueMemberS)
	sk, okSK := attributes[attrSort].(*types.AttributeValueMemberS)
	revision, okRevision := attributes[attrRevision].(*types.AttributeValueMemberN)
	if !okPK || !okSK {
		return item, fmt.Errorf("cannot decode an item: its key is missing: %w", registry.ErrCorrupt)
	}
	item.Key = catalog.Key{Partition: pk.Value, Sort: sk.Value}
	var version int64
	var err error
	if schema, ok := attributes[attrSchema].(*types.AttributeValueMemberN); ok {
		if version, err = strconv.ParseInt(schema.Value, 10, 64); err != nil {
			return catalog.Item{}, fmt.Errorf("cannot decode the schema version of item %s: %w: %w",
				item.Shown(), err, registry.ErrCorrupt)
		}
	}
	if err := catalog.CheckSchema(item.Key, version); err != nil {
		return catalog.Item{}, err
	}
	if !okRevision {
		return catalog.Item{}, fmt.Errorf("cannot decode item %s: its revision is missing: %w",
			item.Shown(), registry.ErrCorrupt)
	}
	if item.Revision, err = strconv.ParseInt(revision.Value, 10, 64); err != nil {
		return catalog.Item{}, fmt.Errorf("cannot decode item %s: %w: %w", item.Shown(), err, registry.ErrCorrupt)
	}
	switch data := attributes[attrData].(type) {
	case *types.AttributeValueMemberS:
		item.Data = []byte(data.Value)
	case *types.AttributeValueMemberB:
		item.Data = data.Value
	default:
		return catalog.Item{}, fmt.Errorf("cannot decode item %s: it has no data: %w", item.Shown(), registry.ErrCorrupt)
	}
	if expires, ok := attributes[attrExpires].(*types.AttributeValueMemberN); ok {
		seconds, err := strconv.ParseInt(expires.Value, 10, 64)
		if err != nil {
			return catalog.Item{}, fmt.Errorf("cannot decode item %s: %w: %w", item.Shown(), err, registry.ErrCorrupt)
		}
		item.Expires = time.Unix(seconds, 0).UTC()
	}
	return item, nil
}

// Write implements [catalog.Table].
func (t *Table) Write(ctx context.Context, changes ...catalog.Change) error {
	if err := catalog.CheckChanges(changes); err != nil {
		return err
	}
	items := make([]types.TransactWriteItem, len(changes))
	for i, c := range changes {
		items[i] = t.item(c)
	}
	// The SDK adds a client request token, so that a retried request is the
	// same write.
	if _, err := t.transactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items}); err != nil {
		return fmt.Errorf("table %s: cannot write %s and %d more: %w",
			t.name, changes[0].Shown(), len(changes)-1, translate(err))
	}
	return nil
}

func (t *Table) item(c catalog.Change) types.TransactWriteItem {
	condition, names, values := t.condition(c)
	if c.Delete {
		return types.TransactWriteItem{Delete: &types.Delete{
			TableName: &t.name, Key: primaryKey(c.Key),
			ConditionExpression: &condition, ExpressionAttributeNames: names, ExpressionAttributeValues: values,
		}}
	}
	if c.Check {
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
			TableName: &t.name, Key: primaryKey(c.Key),
			ConditionExpression: &condition, ExpressionAttributeNames: names, ExpressionAttributeValues: values,
		}}
	}
	item := primaryKey(c.Key)
	item[attrRevision] = number(c.Revision + 1)
	item[attrSchema] = number(catalog.SchemaVersion)
	if utf8.Valid(c.Data) {
		item[attrData] = text(string(c.Data))
	} else {
		item[attrData] = &types.AttributeValueMemberB{Value: c.Data}
	}
	if !c.Expires.IsZero() {
		item[attrExpires] = number(c.Expires.Unix())
	}
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &t.name, Item: item,
		ConditionExpression: &condition, ExpressionAttributeNames: names, ExpressionAttributeValues: values,
	}}
}

// condition returns the condition that the item has the state that the change
// expects. An expired item counts as absent.
func (t *Table) condition(c catalog.Change) (string, map[string]string, map[string]types.AttributeValue) {
	now := number(t.now().Unix())
	if c.Revision == 0 {
		return "attribute_not_exists(#pk) OR #expires <= :now",
			map[string]string{"#pk": attrPartition, "#expires": attrExpires},
			map[string]types.AttributeValue{":now": now}
	}
	return "#revision = :revision AND (attribute_not_exists(#expires) OR #expires > :now)",
		map[string]string{"#revision": attrRevision, "#expires": attrExpires},
		map[string]types.AttributeValue{":revision": number(c.Revision), ":now": now}
}

// translate wraps an error in the sentinel that a caller can act on.
func translate(err error) error {
	var (
		cancelled   *types.TransactionCanceledException
		conflict    *types.TransactionConflictException
		underWay    *types.TransactionInProgressException
		throughput  *types.ProvisionedThroughputExceededException
		requests    *types.RequestLimitExceeded
		throttled   *types.ThrottlingException
		missing     *types.ResourceNotFoundException
		response    *awshttp.ResponseError
		unavailable = errors.As(err, &throughput) || errors.As(err, &requests) || errors.As(err, &throttled)
	)
	switch {
	case errors.As(err, &cancelled):
		for _, reason := range cancelled.CancellationReasons {
			switch aws.ToString(reason.Code) {
			case "ConditionalCheckFailed", "TransactionConflict":
				return fmt.Errorf("%w: %w", registry.ErrConflict, err)
			case "ThrottlingError", "ProvisionedThroughputExceeded":
				unavailable = true
			}
		}
	case errors.As(err, &conflict), errors.As(err, &underWay):
		return fmt.Errorf("%w: %w", registry.ErrConflict, err)
	case errors.As(err, &missing):
		return fmt.Errorf("the table does not exist in this account and region: %w", missing)
	case errors.As(err, &response):
		// A status of 4xx is DynamoDB rejecting the request. The status is 0 if
		// there was no response. It is below 400 if the response could not be
		// read or came from another server.
		status := response.HTTPStatusCode()
		unavailable = unavailable || status < http.StatusBadRequest || status >= http.StatusInternalServerError
	case !errors.Is(err, context.Canceled):
		unavailable = true // the request was not sent
	}
	if unavailable {
		return fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
	}
	return err
}
