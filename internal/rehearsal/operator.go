package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/cloud/partition"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/settings"
)

// The roles that operators assume. They exist while a stack is used.
const (
	operatorRole = StackName + "-operator"
	withdrawRole = StackName + "-withdraw"
)

// operators are the credentials with which the command line uses a stack.
type operators struct {
	// operator has only the operator's policy. withdraw also has the withdraw
	// policy.
	operator, withdraw aws.Credentials
}

// assume creates the operators' roles, and assumes them.
func (r *Rehearsal) assume(ctx context.Context, stack *Stack) (o operators, err error) {
	operator, withdraw := stack.Outputs[settings.OutputOperatorPolicy], stack.Outputs[settings.OutputWithdrawPolicy]
	if o.operator, err = r.assumeRole(ctx, stack.Account, operatorRole, operator); err != nil {
		return operators{}, err
	}
	o.withdraw, err = r.assumeRole(ctx, stack.Account, withdrawRole, operator, withdraw)
	return o, err
}

// assumeRole creates a role with only these policies, and returns its
// credentials. Administrators of the account may assume it.
func (r *Rehearsal) assumeRole(ctx context.Context, account, name string, policies ...string) (aws.Credentials,
	error) {
	client := iam.NewFromConfig(r.Account)
	if err := r.createRole(ctx, account, name); err != nil {
		return aws.Credentials{}, err
	}
	for _, policy := range policies {
		// moto loses the ARN of a policy when an update of the stack changes
		// it. In an emulator, Account evaluates the template's policies
		// instead.
		if policy == "" && r.Endpoint != "" {
			continue
		}
		if _, err := client.AttachRolePolicy(
			ctx,
			&iam.AttachRolePolicyInput{RoleName: &name, PolicyArn: &policy},
		); err != nil {
			return aws.Credentials{}, fmt.Errorf("cannot attach policy %[2]s to role %[1]s: %[3]w", name, policy, err)
		}
	}
	c, err := r.sessionOf(ctx, account, name)
	if err == nil {
		as := r.Account.Copy()
		as.Credentials = credentials.StaticCredentialsProvider{Value: c}
		err = untilAllowed(ctx, func() error {
			_, err := signedcall.DescribeStack(ctx, as, StackName)
			return err
		})
	}
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("cannot assume role %s: %w", name, err)
	}
	return c, nil
}

// arns returns the beginning of the ARNs of IAM in the account.
func (r *Rehearsal) arns(account string) string {
	return "arn:" + partition.Of(r.Account.Region).ID + ":iam::" + account + ":"
}

// createRole creates a role that administrators of the account may assume, unless
// a killed rehearsal has left it.
func (r *Rehearsal) createRole(ctx context.Context, account, name string) error {
	trust := `{"Version":"2012-10-17","Statement":[{
		"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"AWS":"` + r.arns(account) + `root"}
	}]}`
	_, err := iam.NewFromConfig(r.Account).CreateRole(
		ctx,
		&iam.CreateRoleInput{
			RoleName:                 &name,
			AssumeRolePolicyDocument: &trust,
			Description:              aws.String("For a rehearsal of " + StackName),
		},
	)
	var exists *iamtypes.EntityAlreadyExistsException
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("cannot create role %s: %w", name, err)
	}
	return nil
}

// sessionOf assumes a role.
func (r *Rehearsal) sessionOf(ctx context.Context, account, name string) (c aws.Credentials, err error) {
	err = untilAllowed(ctx, func() error {
		out, err := sts.NewFromConfig(r.Account).AssumeRole(ctx, &sts.AssumeRoleInput{
			RoleArn: aws.String(r.arns(account) + "role/" + name), RoleSessionName: aws.String("rehearsal"),
		})
		if err != nil {
			return err
		}
		c = aws.Credentials{
			AccessKeyID:     *out.Credentials.AccessKeyId,
			SecretAccessKey: *out.Credentials.SecretAccessKey,
			SessionToken:    *out.Credentials.SessionToken,
		}
		return nil
	})
	return c, err
}

var accessDenied = regexp.MustCompile(`^AccessDenied|^InvalidClientTokenId$`)

// untilAllowed calls do again while it is denied. New roles, and policies
// attached to them, take some seconds to become effective.
func untilAllowed(ctx context.Context, do func() error) error {
	const attempts, wait = 30, 2 * time.Second
	for attempt := 1; ; attempt++ {
		err := do()
		var failed smithy.APIError
		if err == nil || attempt == attempts || !errors.As(err, &failed) ||
			!accessDenied.MatchString(failed.ErrorCode()) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// removeRoles deletes the operators' roles that exist. A stack cannot be
// deleted while its policies are attached to a role.
func (r *Rehearsal) removeRoles(ctx context.Context) error {
	var errs []error
	for _, name := range []string{operatorRole, withdrawRole} {
		if err := removeRole(ctx, iam.NewFromConfig(r.Account), name); err != nil {
			errs = append(errs, fmt.Errorf("cannot delete role %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func removeRole(ctx context.Context, client *iam.Client, name string) error {
	attached, err := client.ListAttachedRolePolicies(ctx, &iam.ListAttachedRolePoliciesInput{RoleName: &name})
	var missing *iamtypes.NoSuchEntityException
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range attached.AttachedPolicies {
		if _, err := client.DetachRolePolicy(
			ctx,
			&iam.DetachRolePolicyInput{RoleName: &name, PolicyArn: p.PolicyArn},
		); err != nil {
			return err
		}
	}
	_, err = client.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &name})
	return err
}
