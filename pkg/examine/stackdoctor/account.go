package stackdoctor

import (
	"context"
	"fmt"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
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
	most, err := signedcall.GetAccountConcurrency(ctx, e.Services.Config)
	switch {
	case err != nil:
		e.failed(c, err)
	case most < settings.EnoughConcurrency:
		e.warn(
			c.step,
			c.String(),
			fmt.Sprintf("at most %d functions run at once in the region, so requests can fail when many clients come at once",
				most),
			`request 1,000 "Concurrent executions" in Service Quotas, which is free: `+
				"aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 "+
				"--desired-value 1000",
		)
	default:
		e.ok(c.step, fmt.Sprintf("%d functions can run at once in the region", most))
	}
}

// accountThrottle compares the stage's limits together with the account's.
func (e *examination) accountThrottle(ctx context.Context) {
	c := call{"account throttle", "apigateway:GET", "/account"}
	account, err := signedcall.GetAccountThrottle(ctx, e.Services.Config)
	if err != nil {
		e.failed(c, err)
		return
	}
	most := limits{account.RateLimit, account.BurstLimit}
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
