package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// slowAttackers is the number of attackers that publish slow archives at
	// once. Each has its own token and namespace.
	slowAttackers = 4
	// honestPublishes is the number of modules published at the same time.
	honestPublishes = 5
	// slowFiles is the number of files in a slow archive. slowSize is the size
	// of each file.
	slowFiles, slowSize = 2, 290_000
	// slowInput is the name of a valid input that is slow to parse.
	slowInput = "elements"
)

// fairness measures how long an honest publisher waits while others publish
// archives that are slow to inspect.
func (a *attacked) fairness(ctx context.Context) error {
	archive, err := slowArchive(min(slowFiles, a.n.attacks))
	if err != nil {
		return err
	}
	token, err := a.credential(ctx, a.server, "honest", "publish:modules/honest/**")
	if err != nil {
		return err
	}
	attacking, stop := context.WithCancel(ctx)
	defer stop()
	var attackers sync.WaitGroup
	var sent atomic.Int64
	senders := make([]*attacker, slowAttackers)
	for i := range senders {
		m := registry.Module{Namespace: fmt.Sprintf("slow-%d", i), Name: "attack", System: "null"}
		credential, err := a.credential(ctx, a.server, m.Namespace, "publish:"+m.Path())
		if err != nil {
			return err
		}
		sender := &attacker{v: a.server, token: credential}
		senders[i] = sender
		attackers.Go(func() {
			for n := 0; attacking.Err() == nil; n++ {
				sent.Add(1)
				_ = sender.inspect(attacking, m.Path(), fmt.Sprintf("0.0.%d", n), sentFile{"attack.tar.gz", archive})
			}
		})
	}
	time.Sleep(min(time.Second, a.n.attackTime/4)) // by then, all of them are being inspected
	honest, failed, worst := &attacker{v: a.server, token: token}, 0, time.Duration(0)
	m := registry.Module{Namespace: "honest", Name: "small", System: "null"}
	for n := range min(honestPublishes, a.n.attacks) {
		good, err := moduleOf(hostile.HCL{Make: func(int) []byte { return []byte("output \"it\" { value = 1 }\n") }},
			1)
		if err != nil {
			return err
		}
		r := honest.publish(ctx, m.Path(), fmt.Sprintf("1.0.%d", n), nil, sentFile{"small.tar.gz", good})
		if worst = max(worst, r.took); !r.accepted() {
			failed++
			a.note("honest publisher: " + r.String())
		}
	}
	stop()
	attackers.Wait()
	for _, sender := range append(senders, honest) {
		a.presigned(sender.urls...)
	}
	a.found.tables = append(a.found.tables, table{
		title: "an honest publisher beside four slow ones",
		columns: []column{{"slow archives sent", ""}, {"honest publishes", ""}, {"of these failed", ""},
			{"slowest", "s"}},
		rows: []row{{"larder serve", []*figure{
			is(float64(sent.Load())), is(float64(min(honestPublishes, a.n.attacks))), atMost(float64(failed), 0),
			atMost(worst.Seconds(), mostTime),
		}}},
	})
	// A remaining inspection would disturb the next measurement.
	a.server.kill()
	return a.server.start(ctx)
}

// slowArchive returns a module whose files are all slow to parse.
func slowArchive(files int) ([]byte, error) {
	for _, input := range hostile.All() {
		if input.Name == slowInput {
			slow := func(int) []byte { return input.Make(slowSize * files / slowFiles) }
			return moduleOf(hostile.HCL{Make: slow}, files*largestFile)
		}
	}
	return nil, fmt.Errorf("there is no input %q", slowInput)
}
