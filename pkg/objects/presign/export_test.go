package presign

import "time"

// SetClock replaces the clock of a signer.
func (s *Signer) SetClock(now func() time.Time) { s.now = now }
