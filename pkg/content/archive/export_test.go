package archive

// init lowers the limit, so that tests do not have to unpack a gigabyte.
func init() { maxSize = 64 << 20 }
