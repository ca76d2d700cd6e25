package stackdoctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/larder-registry/larder/pkg/settings"
)

// tableKeys are the keys of a registry's table.
const tableKeys = "pk (string, partition), sk (string, sort)"

// table examines the table that the stack names. The stack may have created or
// adopted it.
func (e *examination) table(ctx context.Context) {
	name := e.outputs[settings.OutputTable]
	c := call{"table", "dynamodb:DescribeTable", name}
	described, err := e.Services.Tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	switch {
	case code(err) == "ResourceNotFoundException":
		e.wrong("table", c.String(), "the table "+name+" does not exist",
			"restore it, and let the stack adopt it; see docs/restore-aws.md")
		return
	case err != nil:
		e.failed(c, err)
	default:
		e.describedTable(ctx, c, described.Table)
	}
	e.timeToLive(ctx, name)
	e.recovery(ctx, name)
}

func (e *examination) describedTable(ctx context.Context, c call, t *types.TableDescription) {
	keys := keysOf(t)
	encrypt := "aws dynamodb update-table --table-name " + aws.ToString(t.TableName) + " --sse-specification "
	key := ""
	if t.SSEDescription != nil {
		key = aws.ToString(t.SSEDescription.KMSMasterKeyArn)
	}
	switch {
	case keys != tableKeys:
		e.wrong("table keys", c.String(), fmt.Sprintf("they are %s instead of %s", keys, tableKeys),
			"this is not the table of a registry: set tableName to the right one")
	default:
		e.ok("table keys", keys)
	}
	switch {
	case t.TableStatus == types.TableStatusUpdating:
		e.warn("table", c.String(), aws.ToString(t.TableName)+" is being updated",
			"run the command again when the update is done")
	case t.TableStatus != types.TableStatusActive:
		e.wrong("table", c.String(),
			fmt.Sprintf("the status of %s is %s", aws.ToString(t.TableName), t.TableStatus),
			"make it usable again; the DynamoDB console shows the reason")
	case !e.encryptedWith(ctx, c, key, "use DynamoDB's own key: "+encrypt+"Enabled=false",
		encrypt+"Enabled=true,SSEType=KMS,KMSMasterKeyId="):
	default:
		e.ok("table", aws.ToString(t.TableName)+" is active")
	}
	if aws.ToBool(t.DeletionProtectionEnabled) {
		e.ok("table deletion protection", "deletion protection is on")
	} else {
		e.wrong("table deletion protection", c.String(), "deletion protection is off",
			"aws dynamodb update-table --table-name "+aws.ToString(t.TableName)+" --deletion-protection-enabled")
	}
}

// keysOf returns the keys of a table in the format of tableKeys.
func keysOf(t *types.TableDescription) string {
	var keys []string
	for _, k := range t.KeySchema {
		kind := "of an unknown type"
		at := slices.IndexFunc(t.AttributeDefinitions, func(a types.AttributeDefinition) bool {
			return aws.ToString(a.AttributeName) == aws.ToString(k.AttributeName)
		})
		if at >= 0 {
			kinds := map[types.ScalarAttributeType]string{"S": "string", "N": "number", "B": "binary"}
			kind = kinds[t.AttributeDefinitions[at].AttributeType]
		}
		role := "partition"
		if k.KeyType == types.KeyTypeRange {
			role = "sort"
		}
		keys = append(keys, fmt.Sprintf("%s (%s, %s)", aws.ToString(k.AttributeName), kind, role))
	}
	slices.Sort(keys) // pk comes before sk; the order in the schema has no meaning
	return strings.Join(keys, ", ")
}

func (e *examination) timeToLive(ctx context.Context, table string) {
	c := call{"table expiry", "dynamodb:DescribeTimeToLive", table}
	out, err := e.Services.Tables.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	if err != nil {
		e.failed(c, err)
		return
	}
	set := "aws dynamodb update-time-to-live --table-name " + table +
		" --time-to-live-specification Enabled=true,AttributeName=" + settings.TTLAttribute
	var status types.TimeToLiveStatus
	var attribute string
	if d := out.TimeToLiveDescription; d != nil {
		status, attribute = d.TimeToLiveStatus, aws.ToString(d.AttributeName)
	}
	switch on := status == types.TimeToLiveStatusEnabled || status == types.TimeToLiveStatusEnabling; {
	case !on:
		e.wrong(c.step, c.String(), "it is off, so expired tokens and uploads stay in the table", set)
	case attribute != settings.TTLAttribute:
		off := strings.Replace(strings.Replace(set, "Enabled=true", "Enabled=false", 1), settings.TTLAttribute,
			attribute, 1)
		e.wrong(c.step, c.String(),
			fmt.Sprintf("items expire by the attribute %s instead of %s", attribute, settings.TTLAttribute),
			off+"; wait an hour, then run "+set)
	default:
		e.ok(c.step, "items expire by the attribute "+attribute)
	}
}

func (e *examination) recovery(ctx context.Context, table string) {
	c := call{"table recovery", "dynamodb:DescribeContinuousBackups", table}
	out, err := e.Services.Tables.DescribeContinuousBackups(ctx,
		&dynamodb.DescribeContinuousBackupsInput{TableName: &table})
	if err != nil {
		e.failed(c, err)
		return
	}
	if d := out.ContinuousBackupsDescription; d == nil || d.PointInTimeRecoveryDescription == nil ||
		d.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus != types.PointInTimeRecoveryStatusEnabled {
		e.wrong(c.step, c.String(), "point-in-time recovery is off",
			"aws dynamodb update-continuous-backups --table-name "+table+
				" --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true")
		return
	}
	e.ok(c.step, "point-in-time recovery is on")
}
