package disk

// Sweep removes what is over.
func Sweep(s *Store) { s.sweep() }
