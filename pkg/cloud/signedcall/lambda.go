package signedcall

import (
	"context"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Function is the configuration of a function of Lambda.
type Function struct {
	Architectures                            []string
	CodeSha256                               string
	EphemeralStorage                         *struct{ Size int }
	Environment                              *FunctionEnvironment
	Handler                                  string
	LastModified                             string
	LastUpdateStatus, LastUpdateStatusReason string
	Layers                                   []FunctionLayer
	LoggingConfig                            *struct{ LogGroup string }
	MemorySize                               int
	Role                                     string
	Runtime                                  string
	State, StateReason                       string
	Timeout                                  int
}

// FunctionEnvironment has the variables of a function, or the reason why they
// cannot be read.
type FunctionEnvironment struct {
	Variables map[string]string
	Error     *struct{ Message string }
}

// FunctionLayer is a layer of a function.
type FunctionLayer struct{ Arn string }

// GetFunctionConfiguration returns the configuration of a function.
func GetFunctionConfiguration(ctx context.Context, config aws.Config, name string) (f Function, err error) {
	path := "/2015-03-31/functions/" + url.QueryEscape(name) + "/configuration"
	err = REST(ctx, config, Lambda, "GetFunctionConfiguration", http.MethodGet, path, nil, &f)
	return f, err
}

// GetFunctionConcurrency returns the reserved concurrency of a function, or nil
// if it has none.
func GetFunctionConcurrency(ctx context.Context, config aws.Config, name string) (*int, error) {
	var out struct{ ReservedConcurrentExecutions *int }
	path := "/2019-09-30/functions/" + url.QueryEscape(name) + "/concurrency"
	err := REST(ctx, config, Lambda, "GetFunctionConcurrency", http.MethodGet, path, nil, &out)
	return out.ReservedConcurrentExecutions, err
}
