package signedcall

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Stack is a stack of CloudFormation.
type Stack struct {
	// ID is its ARN.
	ID     string `xml:"StackId"`
	Status string `xml:"StackStatus"`
	// Created is the time of its creation, and Updated that of its last update, or
	// nil.
	Created time.Time  `xml:"CreationTime"`
	Updated *time.Time `xml:"LastUpdatedTime"`
	// Outputs are its outputs by key.
	Outputs map[string]string `xml:"-"`
}

// DescribeStack returns the stack with a name or an ID. It returns
// [errs.ErrNotFound] if there is none. Only the ID finds a deleted stack.
func DescribeStack(ctx context.Context, config aws.Config, name string) (Stack, error) {
	var out struct {
		Stacks []struct {
			Stack
			Values []struct{ OutputKey, OutputValue string } `xml:"Outputs>member"`
		} `xml:"DescribeStacksResult>Stacks>member"`
	}
	err := Query(ctx, config, CloudFormation, "DescribeStacks", url.Values{"StackName": {name}}, &out)
	failed, ok := errors.AsType[smithy.APIError](err)
	// There is no special code for that.
	missing := ok && failed.ErrorCode() == "ValidationError" && strings.Contains(failed.ErrorMessage(), "does not exist")
	if missing || err == nil && len(out.Stacks) != 1 {
		return Stack{}, fmt.Errorf("cannot find stack %s: %w", name, errs.ErrNotFound)
	}
	if err != nil {
		return Stack{}, err
	}
	stack := out.Stacks[0].Stack
	stack.Outputs = make(map[string]string)
	for _, output := range out.Stacks[0].Values {
		stack.Outputs[output.OutputKey] = output.OutputValue
	}
	return stack, nil
}

// StackSummary is an item in a listing of stacks.
type StackSummary struct {
	Name        string `xml:"StackName"`
	Description string `xml:"TemplateDescription"`
}

// ListStacks returns the stacks that have one of some statuses.
func ListStacks(ctx context.Context, config aws.Config, statuses ...string) (all []StackSummary, err error) {
	in := url.Values{}
	for i, status := range statuses {
		in.Set(fmt.Sprintf("StackStatusFilter.member.%d", i+1), status)
	}
	err = pages(in, func() (next string, err error) {
		var out struct {
			Stacks []StackSummary `xml:"ListStacksResult>StackSummaries>member"`
			Next   string         `xml:"ListStacksResult>NextToken"`
		}
		err = Query(ctx, config, CloudFormation, "ListStacks", in, &out)
		all = append(all, out.Stacks...)
		return out.Next, err
	})
	return all, err
}

// GetTemplate returns the template of a stack.
func GetTemplate(ctx context.Context, config aws.Config, stack string) ([]byte, error) {
	var out struct {
		Body []byte `xml:"GetTemplateResult>TemplateBody"`
	}
	err := Query(ctx, config, CloudFormation, "GetTemplate", url.Values{"StackName": {stack}}, &out)
	return out.Body, err
}

// StackResource is a resource of a stack.
type StackResource struct {
	// Logical is its ID in the template, and Physical its ID in AWS.
	Logical  string `xml:"LogicalResourceId"`
	Physical string `xml:"PhysicalResourceId"`
	// Type is its type in the template.
	Type string `xml:"ResourceType"`
}

// ListStackResources returns the resources of a stack.
func ListStackResources(ctx context.Context, config aws.Config, stack string) (all []StackResource, err error) {
	in := url.Values{"StackName": {stack}}
	err = pages(in, func() (next string, err error) {
		var out struct {
			Resources []StackResource `xml:"ListStackResourcesResult>StackResourceSummaries>member"`
			Next      string          `xml:"ListStackResourcesResult>NextToken"`
		}
		err = Query(ctx, config, CloudFormation, "ListStackResources", in, &out)
		all = append(all, out.Resources...)
		return out.Next, err
	})
	return all, err
}

// pages calls page until it returns no next token. It puts each token into in,
// which page sends.
func pages(in url.Values, page func() (next string, err error)) error {
	for {
		next, err := page()
		if err != nil || next == "" {
			return err
		}
		in.Set("NextToken", next)
	}
}
