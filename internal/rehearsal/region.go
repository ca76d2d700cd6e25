package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// copiedName is the name of the bucket in the second region. A replica of a
// table has the table's name.
const copiedName = restoredName + "-copy"

// loseRegion makes a read-only copy of the restored registry in another region,
// there. It then loses the first region, and makes the copy a full registry, as
// described in docs/switch-regions.md. It returns the stack of that registry.
//
// moto replicates neither tables nor buckets, so the rehearsal copies what AWS
// would replicate.
func (d *deployment) loseRegion(ctx context.Context, stack *Stack, there *deployment) (*Stack, error) {
	there.adopted = map[string]any{"tableName": restoredName, "bucketName": copiedName, "readOnly": true}
	var err error
	if there.key, err = there.createKey(ctx, stack.Account); err != nil {
		return nil, err
	}
	token, err := d.replicate(ctx, stack, there)
	if err != nil {
		return nil, err
	}
	if err := there.bootstrap(ctx); err != nil {
		return nil, err
	}
	err = d.step("cdk deploy of a read-only copy in "+there.Account.Region,
		func() error { return there.deploySource(ctx) })
	if err == nil {
		err = there.useCopy(ctx, token)
	}
	if err == nil {
		err = d.step("losing the region "+d.Account.Region, func() error {
			return errors.Join(d.deleteStack(ctx, StackName), d.deleteTable(ctx, restoredName), d.deleteBucket(ctx, restoredName))
		})
	}
	if err == nil {
		delete(there.adopted, "readOnly")
		err = d.step("cdk deploy of a full registry from the copy", func() error { return there.deploySource(ctx) })
	}
	if err != nil {
		return nil, err
	}
	return there.adopting(ctx)
}

// inAnotherRegion returns a deployment in another region of the account. It has no
// pipeline yet.
func (d *deployment) inAnotherRegion() *deployment {
	region := "us-west-2"
	if d.Account.Region == region {
		region = "us-east-2"
	}
	rehearsal, there := *d.Rehearsal, *d
	rehearsal.Account.Region = region
	rehearsal.Env = append(slices.Clone(d.Env), "AWS_REGION="+region, "AWS_DEFAULT_REGION="+region)
	there.Rehearsal, there.pipeline = &rehearsal, nil
	return &there
}

// replicate copies the table and the bucket to another region. It withdraws a
// version in between: S3 does not replicate that its objects are removed. It
// returns a token to publish.
func (d *deployment) replicate(ctx context.Context, stack *Stack, there *deployment) (token string, err error) {
	registry, running, done, err := d.open(ctx, stack)
	if err != nil {
		return "", err
	}
	defer done()
	reserved := d.reserved(registry)
	gone := reserved.Namespace + "/hello/null"
	err = d.steps(running, []task{
		{"creating tokens, and a version to withdraw", func() error {
			if token, err = reserved.newToken(ctx, "copied", "publish:modules/"+reserved.Namespace+"/**"); err != nil {
				return err
			}
			if _, err := reserved.readersToken(ctx); err != nil {
				return err
			}
			return reserved.publishModule(ctx, gone, "0.9.0", "withdrawn")
		}},
		{"copying the bucket to " + there.Account.Region, func() error {
			return there.copyBucket(ctx, restoredName, copiedName)
		}},
		{"withdrawing the version, and then copying the table", func() error {
			if err := reserved.Withdraw(ctx, gone, "0.9.0", "--reason", "rehearsed"); err != nil {
				return err
			}
			return d.copyTable(ctx, there)
		}},
	})
	return token, err
}

// copyTable creates the table in another region, with its items.
func (d *deployment) copyTable(ctx context.Context, there *deployment) error {
	from, to, name := dynamodb.NewFromConfig(d.Account), dynamodb.NewFromConfig(there.Account), aws.String(restoredName)
	described, err := from.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: name})
	if err != nil {
		return err
	}
	if _, err := to.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: name, KeySchema: described.Table.KeySchema, AttributeDefinitions: described.Table.AttributeDefinitions,
		BillingMode: dynamodbtypes.BillingModePayPerRequest,
		SSESpecification: &dynamodbtypes.SSESpecification{
			Enabled: aws.Bool(true), SSEType: dynamodbtypes.SSETypeKms, KMSMasterKeyId: &there.key,
		},
	}); err != nil {
		return err
	}
	for pages := dynamodb.NewScanPaginator(from, &dynamodb.ScanInput{TableName: name}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if _, err := to.PutItem(ctx, &dynamodb.PutItemInput{TableName: name, Item: item}); err != nil {
				return err
			}
		}
	}
	return protectTable(ctx, to, name)
}

// useCopy uses a read-only copy. Nothing in it can write, except log in to the
// pages.
func (d *deployment) useCopy(ctx context.Context, token string) error {
	stack, err := d.adopting(ctx)
	if err != nil {
		return err
	}
	registry, running, done, err := d.open(ctx, stack)
	if err != nil {
		return err
	}
	defer done()
	reserved := d.reserved(registry)
	return d.steps(running, []task{
		{"the copy: doctor --stack", func() error { return reserved.examine(ctx) }},
		{"the copy: verify, withdraw again, verify", func() error {
			if err := reserved.verify(ctx, false); err != nil {
				return err
			}
			if err := reserved.Withdraw(ctx, reserved.Namespace+"/hello/null", "0.9.0", "--reason", "rehearsed"); err != nil {
				return err
			}
			return reserved.verify(ctx, true)
		}},
		{"the copy: init, log in", func() error {
			if err := reserved.install(ctx); err != nil {
				return err
			}
			reader, err := reserved.readersToken(ctx)
			if err != nil {
				return err
			}
			b := &browser{Registry: reserved, cookies: make(map[string]string)}
			if err := b.logIn(ctx, reader); err != nil {
				return err
			}
			_, err = b.send(ctx, http.MethodGet, "/", nil, "", http.StatusOK)
			return err
		}},
		{"the copy: publishing is refused", func() error { return reserved.cannotPublish(ctx, token) }},
	})
}

// cannotPublish returns an error unless the registry refuses a module that is
// published with a token, and one that is published with AWS credentials.
func (r *Registry) cannotPublish(ctx context.Context, token string) error {
	const refusal = "this registry is a read-only copy"
	p, err := r.publisher(token)
	if err != nil {
		return err
	}
	folder, err := r.folder(`output "text" { value = "refused" }`)
	if err != nil {
		return err
	}
	module := r.Namespace + "/hello/null"
	if err := p.refused(ctx, refusal, "publish", "module", folder, module, "2.0.0"); err != nil {
		return err
	}
	if err := r.publishModule(ctx, module, "2.0.0", "refused"); err == nil || !strings.Contains(err.Error(), refusal) {
		return fmt.Errorf("with AWS credentials, larder does not print %q: %w", refusal, err)
	}
	return nil
}
