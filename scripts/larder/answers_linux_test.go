package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// A listing or a download needs at most 1.6 times the server's processor time of
// a health check, which is nearly only TLS and HTTP. scripts/bench runs this test.
func TestAnswerTime(t *testing.T) {
	if os.Getenv("LARDER_BENCH") == "" {
		t.Skip("scripts/bench runs it")
	}
	const bound, rounds, requests = 1.6, 40, 500
	data := newData(t)
	for minor := range 20 {
		publishModule(t, data, "acme/vpc/aws", fmt.Sprintf("1.%d.0", minor), withOutput("x"))
	}
	s := serve(t, data)
	paths := []string{"/healthz", "/v1/modules/acme/vpc/aws/versions", "/v1/modules/acme/vpc/aws/1.9.0/download"}
	for _, protocol := range []int{2, 1} {
		transport := &http.Transport{TLSClientConfig: secured(s.CAFile), ForceAttemptHTTP2: protocol == 2}
		if protocol == 1 {
			transport.TLSNextProto = make(map[string]func(string, *tls.Conn) http.RoundTripper)
		}
		client := &http.Client{Transport: transport}
		used := make(map[string]float64)
		for range rounds { // they take turns
			for _, path := range paths {
				before := processorTime(t, s.cmd.Process.Pid)
				for range requests {
					answer(t, client, s.URL+path, protocol)
				}
				used[path] += processorTime(t, s.cmd.Process.Pid) - before
			}
		}
		for _, path := range paths {
			ratio := used[path] / used[paths[0]]
			t.Logf("HTTP/%d %s: %.0f µs, %.2f times a health check", protocol, path, used[path]*1e6/rounds/requests, ratio)
			if ratio > bound && protocol == 2 { // as clients use it
				t.Errorf("%s needs %.2f times the time of a health check, more than %.2f", path, ratio, bound)
			}
		}
	}
}

// answer reads the answer to a request.
func answer(t *testing.T, client *http.Client, url string, protocol int) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	if response.StatusCode >= 300 || response.ProtoMajor != protocol {
		t.Fatalf("%s: %s with %s", url, response.Status, response.Proto)
	}
}

// processorTime returns the seconds of processor time that a process has used.
func processorTime(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The second field is the name of the program, which can have spaces.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return float64(ticks) / 100 // of Linux, each 10 ms
}
