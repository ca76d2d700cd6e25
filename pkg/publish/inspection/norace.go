//go:build !race

package inspection

// raceReserve is zero without the race detector.
const raceReserve = 0
