package signedcall

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// GetAccountConcurrency returns how many functions of Lambda can run at once in
// the region.
func GetAccountConcurrency(ctx context.Context, config aws.Config) (int, error) {
	var out struct {
		AccountLimit *struct{ ConcurrentExecutions int }
	}
	err := REST(ctx, config, Lambda, "GetAccountSettings", http.MethodGet, "/2016-08-19/account-settings", nil, &out)
	if err == nil && out.AccountLimit == nil {
		err = errors.New("the response of Lambda has no limit")
	}
	if err != nil {
		return 0, err
	}
	return out.AccountLimit.ConcurrentExecutions, nil
}

// Throttle has the limits of a throttle of API Gateway.
type Throttle struct {
	// RateLimit is in requests a second, and BurstLimit in requests at once.
	RateLimit  float64
	BurstLimit int
}

// GetAccountThrottle returns the limits of all APIs together in the region.
func GetAccountThrottle(ctx context.Context, config aws.Config) (Throttle, error) {
	var out struct{ ThrottleSettings Throttle }
	err := REST(ctx, config, APIGatewayV1, "GetAccount", http.MethodGet, "/account", nil, &out)
	return out.ThrottleSettings, err
}
