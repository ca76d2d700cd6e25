package doctor

import "time"

// SetTimes makes waits as short as tests need them.
func (d *Doctor) SetTimes(patience, idle time.Duration) { d.patience, d.idle = patience, idle }
