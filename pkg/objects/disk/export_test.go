package disk

// Sweep removes expired objects.
func Sweep(s *Store) { s.sweep() }
