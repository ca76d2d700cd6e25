// Package dynamodbtest emulates DynamoDB, and counts the reads.
package dynamodbtest

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/truora/minidyn/server"

	"github.com/larder-registry/larder/internal/testkit/awstest"
)

// Server is an emulated DynamoDB in this process.
type Server struct {
	URL    string
	table  string
	server *httptest.Server
	meter  *meter
}

// Start starts an emulator with one table that has the keys pk and sk. The
// caller closes it.
func Start(ctx context.Context, table string) (*Server, error) {
	d := &Server{table: table, meter: &meter{next: server.NewServer()}}
	d.server = httptest.NewServer(d.meter)
	d.URL = d.server.URL
	_, err := d.client().CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
	})
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("cannot start DynamoDB: %w", err)
	}
	return d, nil
}

func (d *Server) client() *dynamodb.Client { return dynamodb.NewFromConfig(awstest.Config(d.URL)) }

// attributes are the attributes of an item.
type attributes = map[string]types.AttributeValue

func (d *Server) items(ctx context.Context) (items []attributes, err error) {
	pages := dynamodb.NewScanPaginator(d.client(), &dynamodb.ScanInput{TableName: &d.table})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
	}
	return items, nil
}

// Dump returns all items of the table as text, in a fixed order.
func (d *Server) Dump(ctx context.Context) ([]string, error) {
	items, err := d.items(ctx)
	lines := make([]string, len(items))
	for i, item := range items {
		var line strings.Builder
		for _, name := range []string{"pk", "sk"} {
			fmt.Fprintf(&line, "%s ", text(item[name]))
		}
		for _, name := range slices.Sorted(maps.Keys(item)) {
			fmt.Fprintf(&line, "%s=%s ", name, text(item[name]))
		}
		lines[i] = line.String()
	}
	slices.Sort(lines)
	return lines, err
}

func text(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return fmt.Sprintf("%x", v.Value)
	}
	return fmt.Sprintf("%T", v)
}

// SetSchema sets the schema version of the items in the partitions for which
// picks returns true, like another release would. 0 removes it.
func (d *Server) SetSchema(ctx context.Context, version int, picks func(partition string) bool) error {
	items, err := d.items(ctx)
	if err != nil {
		return err
	}
	for _, item := range items {
		if !picks(text(item["pk"])) {
			continue
		}
		item["schema"] = &types.AttributeValueMemberN{Value: strconv.Itoa(version)}
		if version == 0 {
			delete(item, "schema")
		}
		if _, err := d.client().PutItem(ctx, &dynamodb.PutItemInput{TableName: &d.table, Item: item}); err != nil {
			return err
		}
	}
	return nil
}

// Reads returns the reads since the last call.
func (d *Server) Reads() Reads { return d.meter.take() }

// Close stops the emulator.
func (d *Server) Close() { d.server.Close() }
