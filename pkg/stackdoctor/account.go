package stackdoctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/larder-registry/larder/pkg/settings"
)

// accountLimits compares the account's limits with what the stack needs.
func (e *examination) accountLimits(ctx context.Context) {
	e.concurrency(ctx)
	if e.template != nil {
		e.accountThrottle(ctx)
	}
}

// concurrency examines how many functions can run at once in the region.
func (e *examination) concurrency(ctx context.Context) {
	c := call{"account concurrency", "lambda:GetAccountSettings", e.Region}
	out, err := e.Services.Functions.GetAccountSettings(ctx, &lambda.GetAccountSettingsInput{})
	if err == nil && out.AccountLimit == nil {
		err = errors.New("the response has no limit")
	}
	switch {
	case err != nil:
		e.failed(c, err)
	case out.AccountLimit.ConcurrentExecutions < settings.EnoughConcurrency:
		e.warn(
			c.step,
			c.String(),
			fmt.Sprintf("at most %d functions run at once in the region, so requests can fail when many clients come at once",
				out.AccountLimit.ConcurrentExecutions),
			`request 1,000 "Concurrent executions" in Service Quotas, which is free: `+
				"aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 "+
				"--desired-value 1000",
		)
	default:
		e.ok(c.step, fmt.Sprintf("%d functions can run at once in the region", out.AccountLimit.ConcurrentExecutions))
	}
}

// accountThrottle compares the stage's limits together with the account's.
func (e *examination) accountThrottle(ctx context.Context) {
	c := call{"account throttle", "apigateway:GET", "/account"}
	var account struct {
		ThrottleSettings struct {
			RateLimit  float64
			BurstLimit int
		}
	}
	text, err := e.Services.Gateways.Get(ctx, "/account")
	if err == nil {
		err = json.Unmarshal(text, &account)
	}
	if err != nil {
		e.failed(c, err)
		return
	}
	most := limits{account.ThrottleSettings.RateLimit, account.ThrottleSettings.BurstLimit}
	var all limits
	for _, l := range e.template.deployedStage().RouteSettings { // all routes have their own
		all.ThrottlingRateLimit += l.ThrottlingRateLimit
		all.ThrottlingBurstLimit += l.ThrottlingBurstLimit
	}
	if all.ThrottlingRateLimit > most.ThrottlingRateLimit || all.ThrottlingBurstLimit > most.ThrottlingBurstLimit {
		e.warn(
			c.step,
			c.String(),
			fmt.Sprintf("the stage's limits together are %s, but the account allows all its APIs %s", all, most),
			"request higher limits from AWS Support, or remove throttleRate and throttleBurst from settings.json and deploy",
		)
		return
	}
	e.ok(c.step, fmt.Sprintf("the account allows all its APIs %s", most))
}
