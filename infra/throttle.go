package main

import (
	"fmt"

	"github.com/larder-registry/larder/pkg/httpapi"
)

// throttle is a limit of the gateway: a bucket of burst tokens, to which rate
// tokens are added each second. A request takes one, or gets 429.
type throttle struct{ rate, burst int }

// throttles returns the limit of each route, by its key in the gateway. So a flood
// on one route refuses no request on another. It matters most for discovery, since
// most clients end at once if it is refused.
func (s Settings) throttles() map[string]throttle {
	limits := make(map[string]throttle)
	for _, f := range functions() {
		part := func(key string, parts throttle) {
			limits[key] = throttle{max(s.ThrottleRate/parts.rate, 1), max(s.ThrottleBurst/parts.burst, 1)}
		}
		for _, key := range f.routeKeys() {
			part(key, f.parts)
		}
		for tree, parts := range f.treeParts {
			part(httpapi.TreeKey(tree), parts)
		}
	}
	return limits
}

// sum returns the sum of the limits. If it is within the account's quota, no
// flood of some routes uses up the quota for the others.
func (s Settings) sum() (total throttle) {
	for _, limit := range s.throttles() {
		total.rate += limit.rate
		total.burst += limit.burst
	}
	return total
}

// fit reduces the default limits to the account's quota of the region. It does not
// change limits of the settings file, and warns if they exceed the quota. A quota of
// 0 is unknown.
func (s Settings) fit(quota throttle) Settings {
	total := s.sum()
	if quota.rate == 0 || quota.burst == 0 || total.rate <= quota.rate && total.burst <= quota.burst {
		return s
	}
	have := fmt.Sprintf("API Gateway grants this account %d requests a second and %d at once in this region, "+
		"for all its APIs", quota.rate, quota.burst)
	if s.SetsThrottle {
		s.Warnings = append(s.Warnings, fmt.Sprintf("throttleRate, throttleBurst: %s, but the limits of the routes are "+
			"%d and %d together. A flood of some routes can use up the quota of the others", have, total.rate, total.burst))
		return s
	}
	s.ThrottleRate = min(s.ThrottleRate, s.ThrottleRate*quota.rate/total.rate)
	s.ThrottleBurst = min(s.ThrottleBurst, s.ThrottleBurst*quota.burst/total.burst)
	s.Warnings = append(s.Warnings, fmt.Sprintf("%s. throttleRate is %d and throttleBurst %d, so about %d inits of ten "+
		"modules can begin at once", have, s.ThrottleRate, s.ThrottleBurst, s.ThrottleBurst/10))
	return s
}
