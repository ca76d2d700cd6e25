//go:build race

package inspection

// raceReserve is the memory that the race detector maps for itself, in bytes.
const raceReserve = 1 << 30
