package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/settings"
)

// The roles that operators assume. They are there while a stack is used.
const (
	operatorRole = StackName + "-operator"
	withdrawRole = StackName + "-withdraw"
)

// operators are the credentials with which the command line works on a stack.
type operators struct {
	// operator has the operator's policy alone, and withdraw the policy for
	// withdrawing besides.
	operator, withdraw aws.Credentials
}

// assume makes the roles that operators have, and assumes them.
func (r *Rehearsal) assume(ctx context.Context, stack *Stack) (o operators, err error) {
	operator, withdraw := stack.Outputs[settings.OutputOperatorPolicy], stack.Outputs[settings.OutputWithdrawPolicy]
	if o.operator, err = r.assumeRole(ctx, stack.Account, operatorRole, operator); err != nil {
		return operators{}, err
	}
	o.withdraw, err = r.assumeRole(ctx, stack.Account, withdrawRole, operator, withdraw)
	return o, err
}

// assumeRole makes a role that has these policies alone, and returns
// credentials of it. All that administer the account may assume it.
func (r *Rehearsal) assumeRole(ctx context.Context, account, name string, policies ...string) (aws.Credentials, error) {
	client := iam.NewFromConfig(r.Account)
	trust := fmt.Sprintf(
		`{"Version":"2012-10-17","Statement":[{
			"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"AWS":"arn:aws:iam::%s:root"}
		}]}`,
		account,
	)
	_, err := client.CreateRole(
		ctx,
		&iam.CreateRoleInput{
			RoleName:                 &name,
			AssumeRolePolicyDocument: &trust,
			Description:              aws.String("For a rehearsal of " + StackName),
		},
	)
	var exists *iamtypes.EntityAlreadyExistsException
	if err != nil && !errors.As(err, &exists) { // of a rehearsal that was killed
		return aws.Credentials{}, fmt.Errorf("cannot make role %s: %w", name, err)
	}
	for _, policy := range policies {
		// moto forgets the ARN of a policy that an update of the stack changes. In
		// an emulator the account judges by the template's policies anyway.
		if policy == "" && r.Endpoint != "" {
			continue
		}
		if _, err := client.AttachRolePolicy(
			ctx,
			&iam.AttachRolePolicyInput{RoleName: &name, PolicyArn: &policy},
		); err != nil {
			return aws.Credentials{}, fmt.Errorf("cannot give role %s the policy %s: %w", name, policy, err)
		}
	}
	var c aws.Credentials
	err = untilAllowed(ctx, func() error {
		out, err := sts.NewFromConfig(r.Account).AssumeRole(ctx, &sts.AssumeRoleInput{
			RoleArn: aws.String("arn:aws:iam::" + account + ":role/" + name), RoleSessionName: aws.String("rehearsal"),
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
	if err == nil {
		as := r.Account.Copy()
		as.Credentials = credentials.StaticCredentialsProvider{Value: c}
		stack := StackName
		err = untilAllowed(ctx, func() error {
			_, err := cloudformation.NewFromConfig(
				as,
			).DescribeStacks(
				ctx,
				&cloudformation.DescribeStacksInput{StackName: &stack},
			)
			return err
		})
	}
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("cannot assume role %s: %w", name, err)
	}
	return c, nil
}

var accessDenied = regexp.MustCompile(`^AccessDenied|^InvalidClientTokenId$`)

// untilAllowed does something again while it is not allowed: a new role, and a
// policy that it was given, take some seconds to have effect everywhere.
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

// removeRoles deletes the roles that operators have, as far as they are there.
// A stack cannot be deleted while a role has its policies.
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
