package lambda

import (
	"testing"
	"time"
)

// A request takes a token of its route's bucket and of the account's. Routes
// without a limit of their own share the default, or each has it, in the other
// reading of AWS's documentation.
func TestThrottle(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	limits := func(perRoute bool, account Limit) *Throttle {
		return &Throttle{
			Routes: map[string]Limit{"own": {Rate: 1, Burst: 1}}, Default: Limit{Rate: 2, Burst: 2}, PerRoute: perRoute,
			Account: account, Now: func() time.Time { return now },
		}
	}
	for name, test := range map[string]struct {
		throttle *Throttle
		routes   []string // without time between them
		later    []string // after a second
		want     string   // + for each request that passes
	}{
		"one default": {limits(false, Limit{}), []string{"a", "b", "a", "own", "own"}, []string{"b", "a", "b"}, "++-+-++-"},
		"a default for each route": {
			limits(true, Limit{}), []string{"a", "b", "a", "b", "b"}, []string{"a", "a", "a"}, "++++-++-",
		},
		"the account": {limits(true, Limit{Rate: 1, Burst: 3}), []string{"a", "b", "a", "b"}, []string{"b", "b"}, "+++-+-"},
		"no limits":   {&Throttle{}, []string{"a", "a", "b"}, nil, "+++"},
	} {
		t.Run(name, func(t *testing.T) {
			now = time.Unix(0, 0)
			got := ""
			take := func(routes []string) {
				for _, route := range routes {
					if test.throttle.Take(route) {
						got += "+"
					} else {
						got += "-"
					}
				}
			}
			take(test.routes)
			now = now.Add(time.Second)
			take(test.later)
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
