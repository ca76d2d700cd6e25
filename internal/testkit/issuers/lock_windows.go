package issuers

import "os"

// On Windows nothing is locked: it is there so that the command line's tests
// compile.
func tryLock(*os.File) bool { return true }
