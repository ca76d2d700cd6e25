package main

import (
	"os"
	"time"
)

// Windows has no such signals, and no test measures it. These functions let the
// tests compile.

func pause(*os.Process)  {}
func resume(*os.Process) {}

func cpuTime() time.Duration { return 0 }

func peakMemory(*os.ProcessState) (peak int64, ok bool) { return 0, false }
