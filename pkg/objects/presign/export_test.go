package presign

import "time"

// SetClock has a signer take another clock.
func (s *Signer) SetClock(now func() time.Time) { s.now = now }
