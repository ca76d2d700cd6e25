package archive

// The bound is lower in tests, which need not unpack a gigabyte to see it kept.
func init() { maxSize = 64 << 20 }
