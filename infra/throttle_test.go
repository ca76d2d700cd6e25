package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/providers"
)

// usual and small are the quotas of API Gateway in most regions, and in 13 others.
//
// Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html.
var usual, small = throttle{10_000, 5_000}, throttle{2_500, 1_250}

// traffic sends requests to the gateway of a stack in virtual time.
type traffic struct {
	throttle *lambda.Throttle
	now      time.Time
	keys     []string // of all routes
}

// newTraffic returns the gateway of a stack in an account. Each route has its own
// limit, so the limit of all other routes does not matter.
func newTraffic(t *testing.T, tm template, quota throttle) *traffic {
	t.Helper()
	stage := tm.one(t, "AWS::ApiGatewayV2::Stage")
	limit := func(in any) lambda.Limit {
		of, _ := in.(map[string]any)
		return lambda.Limit{Rate: of["ThrottlingRateLimit"].(float64), Burst: of["ThrottlingBurstLimit"].(float64)}
	}
	r := &traffic{now: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)}
	r.throttle = &lambda.Throttle{
		Routes:  make(map[string]lambda.Limit),
		Account: lambda.Limit{Rate: float64(quota.rate), Burst: float64(quota.burst)},
		Now:     func() time.Time { return r.now },
	}
	settings, _ := stage.at("RouteSettings").(map[string]any)
	for key, of := range settings {
		r.throttle.Routes[key] = limit(of)
	}
	for _, route := range tm.all("AWS::ApiGatewayV2::Route") {
		key, _ := route.at("RouteKey").(string)
		if r.throttle.Routes[key] == (lambda.Limit{}) {
			t.Errorf("%s has no limit", key)
		}
		r.keys = append(r.keys, key)
	}
	slices.Sort(r.keys)
	return r
}

// pass lets some time pass, in which floods send requests at these rates to routes.
func (r *traffic) pass(seconds int, floods map[string]float64) {
	const step = 10 * time.Millisecond
	due := make(map[string]float64)
	for range time.Duration(seconds) * time.Second / step {
		r.now = r.now.Add(step)
		for _, key := range slices.Sorted(maps.Keys(floods)) {
			for due[key] += floods[key] * step.Seconds(); due[key] >= 1; due[key]-- {
				r.throttle.Take(key)
			}
		}
	}
}

// mirroredModules is the route of mirrored modules.
var mirroredModules = httpapi.TreeKey(mirror.ModulesPath)

// inits sends the requests of many inits at the same moment. It returns how many
// are refused, by route.
func (r *traffic) inits(count int) map[string]int {
	refused := make(map[string]int)
	for range count {
		// And of a provider of the registry itself, and of a mirrored module.
		keys := []string{mirroredModules, mirroredModules}
		for _, route := range providers.Routes() {
			keys = append(keys, "ANY "+route.Path)
		}
		for _, key := range keys {
			if !r.throttle.Take(key) {
				refused[key]++
			}
		}
		for path, n := range clients.InitRequests {
			for range n {
				keys := []string{"ANY " + path}
				if strings.HasPrefix(path, mirror.Path) {
					keys = append(keys, httpapi.TreeKey(mirror.ProvidersPath))
				}
				for _, key := range keys {
					if !r.throttle.Take(key) {
						refused[key]++
					}
				}
			}
		}
	}
	return refused
}

// On Monday at nine, a hundred clients begin an init at the same moment, and a
// hundred more 15 seconds later. The default limits refuse none of their requests, of
// either protocol of the mirror, also beside floods of half of the rate of any route.
func TestInitsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		quota throttle
		inits int
	}{"most regions": {usual, 100}, "small regions": {small, 25}} {
		t.Run(name, func(t *testing.T) {
			tm := synth(t, defaults(t).fit(test.quota))
			for _, flooded := range append(newTraffic(t, tm, test.quota).keys, "none", "all") {
				r := newTraffic(t, tm, test.quota)
				floods := make(map[string]float64)
				for _, key := range r.keys {
					if flooded == key || flooded == "all" {
						floods[key] = r.throttle.Routes[key].Rate / 2
					}
				}
				r.pass(20, floods)
				for wave := range 2 {
					if refused := r.inits(test.inits); len(refused) > 0 {
						t.Errorf("with a flood of %q, wave %d: refused %v", flooded, wave+1, refused)
					}
					r.pass(15, floods)
				}
			}
		})
	}
}

// A client requests its modules one after the other, and downloads each in between.
// So the default limits let 45 inits of ten mirrored modules begin at the same
// moment, if each sends four requests a second. A higher rate lets a hundred begin.
func TestMirroredModulesAtOnce(t *testing.T) {
	const interval = 250 * time.Millisecond
	for name, test := range map[string]struct {
		quota   throttle
		inits   int
		context []string
	}{
		"most regions": {usual, 45, nil}, "small regions": {small, 35, nil},
		"higher rate": {usual, 100, []string{"throttleRate", "380"}},
	} {
		r := newTraffic(t, synth(t, defaults(t, test.context...).fit(test.quota)), test.quota)
		for request := range 2 * clients.InitModules {
			for range test.inits {
				if !r.throttle.Take(mirroredModules) {
					t.Fatalf("%s: an init is refused at its request %d", name, request+1)
				}
			}
			r.now = r.now.Add(interval)
		}
	}
}

// No flood of the other routes makes discovery refuse a request, also not where the
// account's quota is small.
func TestDiscoveryInFlood(t *testing.T) {
	const discovery = "ANY /.well-known/terraform.json"
	for name, quota := range map[string]throttle{"most regions": usual, "small regions": small} {
		r := newTraffic(t, synth(t, defaults(t).fit(quota)), quota)
		floods := make(map[string]float64)
		for _, key := range r.keys {
			if key != discovery {
				floods[key] = 5_000
			}
		}
		for second := range 10 {
			r.pass(1, floods)
			for i := range 50 {
				if !r.throttle.Take(discovery) {
					t.Fatalf("%s: refused request %d in second %d", name, i, second)
				}
			}
		}
	}
}
