package nodejs

import "os"

// Windows has no lock here. The function lets the command line's tests compile.
func tryLock(*os.File) bool { return true }
