package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/hostile"
)

// hostileRegistry is a registry whose modules attack their reader.
type hostileRegistry struct {
	server *httptest.Server
	ca     string

	mu      sync.Mutex
	archive []byte
}

func startHostileRegistry(dir string) (*hostileRegistry, error) {
	h := &hostileRegistry{ca: filepath.Join(dir, "hostile-ca.pem")}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/terraform.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"modules.v1":"/v1/modules/"}`)
	})
	mux.HandleFunc("GET /v1/modules/acme/attack/null/versions", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"modules":[{"versions":[{"version":"1.0.0"}]}]}`)
	})
	mux.HandleFunc("GET /v1/modules/acme/attack/null/1.0.0/download", func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		sum := sha256Hex(h.archive)
		h.mu.Unlock()
		w.Header().Set("X-Terraform-Get", "https://"+r.Host+"/attack.tar.gz?archive=tar.gz&checksum=sha256:"+sum)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /attack.tar.gz", func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		w.Header().Set("Content-Type", "application/gzip")
		_, _ = w.Write(h.archive)
	})
	h.server = httptest.NewTLSServer(mux)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	if err := os.WriteFile(h.ca, ca, 0o600); err != nil {
		h.server.Close()
		return nil, err
	}
	return h, nil
}

func (h *hostileRegistry) serve(archive []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.archive = archive
}

// command runs the command line with inputs.
type command struct {
	larder, dir string
	env         []string
	// accepts is a text in the output for an accepted input. If empty, the exit
	// code decides.
	accepts string
	configRun
}

// doctor makes `larder doctor` inspect modules of a hostile registry.
func (c *command) doctor(ctx context.Context) error {
	h, err := startHostileRegistry(c.dir)
	if err != nil {
		return err
	}
	defer h.server.Close()
	c.env, c.accepts = []string{"SSL_CERT_FILE=" + h.ca}, "ok       module archive:"
	return c.each(ctx, func(input hostile.HCL, size int, t *tally) (bool, error) {
		archive, err := moduleOf(input, size)
		if err != nil {
			return false, err
		}
		h.serve(archive)
		return c.run(ctx, input, size, t, "doctor", h.server.URL, "--module", "acme/attack/null")
	})
}

// mirror makes `larder mirror lock` or `larder mirror sync` read inputs. They
// are rejected before any network request.
func (c *command) mirror(ctx context.Context, subcommand string) error {
	name := filepath.Join(c.dir, subcommand+".hcl")
	args := []string{"mirror", subcommand, name, "--store", "dir:" + filepath.Join(c.dir, "data")}
	if subcommand == "lock" {
		args = append(args, "--platform", "linux_amd64")
	}
	return c.each(ctx, func(input hostile.HCL, size int, t *tally) (bool, error) {
		if err := os.WriteFile(name, input.Make(size), 0o600); err != nil {
			return false, err
		}
		return c.run(ctx, input, size, t, args...)
	})
}

// run runs a command with an input and counts its outcome. A command that exits
// with the Go runtime's own report has crashed.
func (c *command) run(ctx context.Context, input hostile.HCL, size int, t *tally, args ...string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.larder, args...)
	cmd.Env = append([]string{"HOME=" + c.dir, "PATH=" + os.Getenv("PATH")}, c.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return false, err
	}
	memory := watchMemory(cmd.Process.Pid)
	err := cmd.Wait()
	took := time.Since(begun)
	memory.close()
	peak := memory.take()
	t.memory, t.slowest = max(t.memory, peak), max(t.slowest, took)
	what := fmt.Sprintf("%s: %s, %d bytes", c.name, input.Name, size)
	switch text := out.String(); {
	case ctx.Err() != nil:
		t.silent++
		c.found.note("%s: it has not ended after %.1f s, %.0f MiB", what, took.Seconds(), peak)
		return false, nil
	case crashed(text) || cmd.ProcessState.ExitCode() < 0:
		t.died++
		c.found.note("%s: it crashed after %.1f s with %.0f MiB: %s", what, took.Seconds(), peak, lastWords(text))
		return false, nil
	case err != nil || !strings.Contains(text, c.accepts):
		t.refused++
	default:
		t.accepted++
	}
	if took.Seconds() > mostTime || peak > mostMemory {
		c.found.note("%s: %.1f s, %.0f MiB", what, took.Seconds(), peak)
		return false, nil
	}
	return true, nil
}

// crashed reports whether the output has a fatal error of the Go runtime.
func crashed(output string) bool {
	return strings.Contains(output, "\ngoroutine ") &&
		(strings.Contains(output, "fatal error: ") || strings.Contains(output, "panic: "))
}
