package doctor

import "time"

// SetTimes makes waits as short as tests need them.
func (d *Doctor) SetTimes(timeout, idle time.Duration) { d.timeout, d.idle = timeout, idle }
