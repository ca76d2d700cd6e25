package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A deployed registry accepts 100 requests a second by default, so an hour's
// worth of requests are 360,000. They are sent at a constant rate that does not
// depend on the responses.
const (
	// requestsOfInit is the number of requests of an init.
	requestsOfInit = 9
	// startOfInit is the time by which an init started too late.
	startOfInit = "delay of an init"
	// maxLate is the highest share of inits that may not start in time, of 100.
	// With more, the rate was not reached.
	maxLate = 1
	// The bounds on growth are lower than grown, because memory and open files
	// are comparable over time at a constant rate. The memory of a Go process
	// grows until the next garbage collection, and the runtime returns it to the
	// system slowly. Medians of minutes contain many collections, so they do not
	// depend on a single one.
	flatMemory = 1.1
	flatFiles  = 1.05
)

// errRate is the error for a rate that was not reached. It is not a fault of
// the server.
var errRate = errors.New("cannot reach the rate")

// measureHour sends the requests of an hour in a shorter time, with a token. It
// returns the figures together with an error if the rate was not reached or the
// certificate not renewed.
func measureHour(ctx context.Context, larder, dir string, n amounts) (result, error) {
	r, err := startLoad(ctx, larder, dir, false, n)
	if err != nil {
		return result{}, err
	}
	defer r.close()
	p := newPace(n.hourly/requestsOfInit, n.hour)
	pacing, stop := context.WithTimeout(ctx, n.hour)
	defer stop()
	go p.run(pacing)
	err = r.run(ctx, n.hour, n.hour/time.Duration(n.releases), func(ctx context.Context, c *loadClient) {
		for at := range p.due {
			if ctx.Err() == nil {
				c.took[startOfInit] = append(c.took[startOfInit], time.Since(at))
				c.init(context.WithoutCancel(ctx))
			}
		}
	})
	if err != nil {
		return result{}, err
	}
	title := fmt.Sprintf("%d requests in %s", n.hourly, n.hour)
	found := r.summarize(title, n.hour, flatMemory, flatFiles)
	started := 0
	for _, c := range r.clients {
		started += len(c.took[startOfInit])
	}
	rate, err := reached(title, started, p.total, n.hour)
	found.tables = append(found.tables, rate)
	return found, errors.Join(err, r.renewal.check())
}

// reached returns errRate if too few of the offered inits were started in time.
func reached(title string, started, offered int, lasted time.Duration) (t table, err error) {
	late := 100 * float64(offered-started) / float64(offered)
	t = table{title: title + ": rate", columns: []column{{"inits", ""}, {"of 100", ""}}, rows: []row{
		{"offered", []*figure{is(float64(offered)), nil}},
		{"started in time", []*figure{is(float64(started)), nil}},
		{"not started in time", []*figure{is(float64(offered - started)), atMost(late, maxLate)}},
	}}
	if late > maxLate {
		err = fmt.Errorf("%w: %d of %d inits started in %s; the machine is too slow or too busy",
			errRate, started, offered, lasted)
	}
	return t, err
}

// pace has the times at which inits should start.
type pace struct {
	total int
	every time.Duration
	due   chan time.Time
}

func newPace(total int, lasts time.Duration) *pace {
	// The channel has room for all, so that slow clients do not delay the times.
	return &pace{total, lasts / time.Duration(total), make(chan time.Time, total)}
}

// run sends each time when it has come. It closes the channel at the end, or
// when ctx is done.
func (p *pace) run(ctx context.Context) {
	defer close(p.due)
	begun := time.Now()
	for i := range p.total {
		at := begun.Add(time.Duration(i) * p.every)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(at)):
			p.due <- at
		}
	}
}
