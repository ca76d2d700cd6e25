package main

import (
	"os"
	"time"
)

// Windows has no such signals, and is not measured: it is there so that tests compile.

func pause(*os.Process)  {}
func resume(*os.Process) {}

func cpuTime() time.Duration { return 0 }

func peakMemory(*os.ProcessState) (peak int64, told bool) { return 0, false }
