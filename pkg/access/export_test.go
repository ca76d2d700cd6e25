package access

import "time"

// SetClock has a gate and its issuers take the time from a test.
func SetClock(g *Gate, now func() time.Time) {
	g.now = now
	for _, i := range g.issuers {
		i.provider.now = now
	}
}

// Forget has a gate decide anew.
func Forget(g *Gate) {
	g.good.Purge()
	g.bad.Purge()
}
