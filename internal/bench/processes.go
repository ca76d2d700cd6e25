package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// memorySample is the interval between samples of the memory of processes.
	memorySample = 4 * time.Millisecond
	// memoryGuard is the memory, in bytes, at which an attacked process is
	// killed to protect the machine.
	memoryGuard = 3 << 30
)

// memoryWatch samples the resident memory of a process and its descendants. It
// has no samples on systems without /proc.
type memoryWatch struct {
	pid  int
	done chan struct{}
	once sync.Once
	all  sync.WaitGroup

	mu   sync.Mutex
	peak int64
}

// watchMemory samples the memory of a process until close is called.
func watchMemory(pid int) *memoryWatch {
	w := &memoryWatch{pid: pid, done: make(chan struct{})}
	w.all.Go(func() {
		tick := time.NewTicker(memorySample)
		defer tick.Stop()
		for {
			select {
			case <-w.done:
				return
			case <-tick.C:
				w.sample()
			}
		}
	})
	return w
}

func (w *memoryWatch) sample() {
	tree := descendants(w.pid)
	total := int64(0)
	for _, pid := range tree {
		total += resident(pid)
	}
	w.mu.Lock()
	w.peak = max(w.peak, total)
	w.mu.Unlock()
	if total > memoryGuard {
		killTree(w.pid)
	}
}

// take returns the peak since its last call, in MiB.
func (w *memoryWatch) take() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	peak := w.peak
	w.peak = 0
	return float64(peak) / (1 << 20)
}

// close ends the samples. Later calls do nothing.
func (w *memoryWatch) close() {
	w.once.Do(func() { close(w.done) })
	w.all.Wait()
}

// descendants returns a process and all its descendants.
func descendants(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		if err != nil {
			continue
		}
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			if err != nil {
				continue // the thread has exited
			}
			for _, child := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(child); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// resident returns the resident memory of a process in bytes. It returns 0 if
// the process has exited.
func resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// killTree kills a child process and its descendants.
func killTree(pid int) {
	for _, pid := range descendants(pid) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Signal(syscall.SIGKILL)
		}
	}
}
