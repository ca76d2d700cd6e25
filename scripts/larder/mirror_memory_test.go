package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
)

// Many clients that request large lists of versions at once do not use up the
// memory of the server.
func TestPullThroughMemory(t *testing.T) {
	const (
		clients  = 60
		listSize = 8<<20 - 100     // bytes; the longest list that the mirror reads has 8 MiB
		most     = 512 << 20 >> 10 // KiB
	)
	if testing.Short() {
		t.Skip("LEFT OUT: it takes half a minute of processor time, and tests are short")
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("LEFT OUT: the peak of the memory is only known on Linux")
	}
	race := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, race) {
		t.Skip("LEFT OUT: the race detector needs several times the memory")
	}
	for name, entry := range map[string]func(i int) string{
		"versions": func(i int) string {
			return fmt.Sprintf(`{"version":"0.0.%d","platforms":[{"os":"linux","arch":"amd64"}]}`, i)
		},
		"empty entries": func(int) string { return "{}" },
		"empty platforms": func(int) string {
			return `{"version":"1.0.0","platforms":[` + strings.Repeat("{},", 1<<20) + "{}]}"
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := bytes.NewBufferString(`{"versions":[` + entry(0))
			for i := 1; list.Len() < listSize; i++ {
				next := entry(i)
				if list.Len()+len(next) > listSize {
					break
				}
				list.WriteString("," + next)
			}
			list.WriteString("]}")
			var sent atomic.Int64 // lists, to their end
			origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if _, err := w.Write(list.Bytes()); err == nil {
					sent.Add(1)
				}
			}))
			t.Cleanup(origin.Close)
			s := servePulling(t, registry.PullOpen, map[string]string{originHost: origin.URL + "/v1/providers/"},
				authority(t, origin))
			// A client that waits for too long gets no list, or no answer if the machine is
			// busy. The server must only live.
			var running sync.WaitGroup
			for i := range clients {
				running.Go(func() {
					index := fmt.Sprintf("/v1/mirror/%s/acme/p%d/index.json", originHost, i)
					if _, _, err := s.try(t.Context(), index); err != nil {
						t.Logf("a client got no answer: %v", err)
					}
				})
			}
			running.Wait()
			// One caller has three at once.
			if got := sent.Load(); got < 3 {
				t.Errorf("the server read %d lists to their end, want 3 or more", got)
			}
			if status, _ := s.get(t, "/healthz"); status != http.StatusOK {
				t.Errorf("/healthz has status %d", status)
			}
			peak := s.peak(t)
			t.Logf("the peak of the memory is %d MiB", peak>>10)
			if peak > most {
				t.Errorf("the peak of the memory is %d KiB, want at most %d", peak, most)
			}
		})
	}
}

// peak returns the largest amount of memory that the server has used, in KiB.
func (s *server) peak(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("the status of the server has no peak:\n%s", status)
	}
	peak, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return peak
}
