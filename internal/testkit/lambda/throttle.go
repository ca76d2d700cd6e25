package lambda

import (
	"sync"
	"time"
)

// Limit is a token bucket: it has at most Burst tokens, and gets Rate tokens a
// second. A request takes one. The zero value has no limit.
type Limit struct{ Rate, Burst float64 }

// Throttle decides which requests API Gateway refuses with 429.
//
// Sources: https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-throttling.html;
// https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-request-throttling.html.
type Throttle struct {
	// Routes are the limits of single routes, by route key.
	Routes map[string]Limit
	// Default is the limit of all other routes together. If PerRoute is set, each of
	// them has it on its own. AWS documents both.
	Default  Limit
	PerRoute bool
	// Account is the limit of all requests that the other limits let pass.
	Account Limit
	// Now returns the time. If nil, [time.Now] is used.
	Now func() time.Time

	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

// Take reports whether a request for a route passes. If not, it takes nothing.
func (t *Throttle) Take(routeKey string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now
	if t.Now != nil {
		now = t.Now
	}
	limit, name := t.Default, "default"
	if own, ok := t.Routes[routeKey]; ok {
		limit, name = own, "route "+routeKey
	} else if t.PerRoute {
		name = "default of " + routeKey
	}
	at := now()
	own, account := t.bucket(name, limit, at), t.bucket("account", t.Account, at)
	if own.tokens < 1 || account.tokens < 1 {
		return false
	}
	own.tokens--
	account.tokens--
	return true
}

// bucket returns a bucket with its tokens at a time. A bucket without a limit is
// always full.
func (t *Throttle) bucket(name string, l Limit, at time.Time) *bucket {
	if l == (Limit{}) {
		return &bucket{tokens: 1}
	}
	b := t.buckets[name]
	if b == nil {
		if t.buckets == nil {
			t.buckets = make(map[string]*bucket)
		}
		b = &bucket{l.Burst, at}
		t.buckets[name] = b
	}
	if passed := at.Sub(b.at).Seconds(); passed > 0 {
		b.tokens, b.at = min(l.Burst, b.tokens+passed*l.Rate), at
	}
	return b
}
