// Package dynamodbtest emulates DynamoDB, and counts what is read of it.
package dynamodbtest

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/truora/minidyn/server"

	"github.com/larder-registry/larder/internal/testkit/awstest"
)

// Server is an emulated DynamoDB in this process.
type Server struct {
	URL    string
	server *httptest.Server
	meter  *meter
}

// Start starts an emulator that holds one table with the keys pk and sk.
func Start(ctx context.Context, table string) (*Server, error) {
	d := &Server{meter: &meter{next: server.NewServer()}}
	d.server = httptest.NewServer(d.meter)
	d.URL = d.server.URL
	_, err := dynamodb.NewFromConfig(awstest.Config(d.URL)).CreateTable(ctx, &dynamodb.CreateTableInput{
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
		return nil, fmt.Errorf("starting DynamoDB: %w", err)
	}
	return d, nil
}

// Reads returns what has been read since it was last asked for.
func (d *Server) Reads() Reads { return d.meter.take() }

// Close ends the emulator.
func (d *Server) Close() { d.server.Close() }
