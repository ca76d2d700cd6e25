// Package browser drives a headless Chromium in tests. The first start installs
// the browser from npm's packages, and nothing else on the machine changes.
//
// The browser accepts every certificate. It reaches only loopback addresses and
// the hosts in its options, and every other address fails to resolve.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/larder-registry/larder/internal/testkit/nodejs"
	"github.com/larder-registry/larder/internal/testkit/programs"
)

// driver is the path of the program that drives the browser, within the
// checkout.
const driver = "internal/testkit/browser/driver"

// Options are the options of [Start].
type Options struct {
	// Hosts has a loopback address and a port for each other host that the
	// browser can reach, such as 127.0.0.1:8443 for registry.example.com.
	Hosts map[string]string
}

// flags returns the command line of the browser.
func (o Options) flags() []string {
	rules := []string{}
	for _, host := range slices.Sorted(maps.Keys(o.Hosts)) {
		rules = append(rules, "MAP "+host+" "+o.Hosts[host])
	}
	rules = append(rules, "MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1", "EXCLUDE localhost")
	return []string{
		"--no-sandbox", // which a container or root does not have
		"--host-resolver-rules=" + strings.Join(rules, ", "),
		"--disable-background-networking", "--disable-component-update", "--no-pings",
		"--disable-dev-shm-usage", "--disable-gpu",
		// The same pixels on each machine.
		"--font-render-hinting=none", "--force-color-profile=srgb", "--hide-scrollbars",
	}
}

// Browser is a running browser. Its methods can be called concurrently.
type Browser struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{} // closed at the end of the driver's output

	mu      sync.Mutex
	in      io.WriteCloser
	last    int
	waiting map[int]chan response
}

type request struct {
	ID     int    `json:"id"`
	Page   string `json:"page,omitempty"`
	Method string `json:"method"`
	Params any    `json:"params"`
}

type response struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
}

// Start starts a browser. The first call installs it, which takes some seconds.
// Without Node.js, the error is [nodejs.ErrMissing]. The caller closes the
// browser.
func Start(ctx context.Context, o Options) (*Browser, error) {
	dir, err := programs.InCheckout(driver)
	if err != nil {
		return nil, fmt.Errorf("cannot find the driver of the browser: %w", err)
	}
	node, err := nodejs.Install(ctx, dir, "install.mjs")
	if err != nil {
		return nil, fmt.Errorf("cannot install the browser: %w", err)
	}
	b := &Browser{ended: make(chan struct{}), waiting: make(map[int]chan response)}
	// The context of the start does not end the browser. Close does.
	b.cmd = exec.CommandContext(context.WithoutCancel(ctx), node, append([]string{"driver.mjs"}, o.flags()...)...)
	b.cmd.Dir, b.cmd.Stderr = dir, &b.stderr
	out, err := b.cmd.StdoutPipe()
	if err == nil {
		b.in, err = b.cmd.StdinPipe()
	}
	if err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start the browser: %w", err)
	}
	go b.receive(out)
	return b, nil
}

// receive passes responses to the callers that wait for them.
func (b *Browser) receive(out io.Reader) {
	defer close(b.ended)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r response
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		b.mu.Lock()
		caller := b.waiting[r.ID]
		delete(b.waiting, r.ID)
		b.mu.Unlock()
		if caller != nil {
			caller <- r
		}
	}
}

func (b *Browser) call(ctx context.Context, page, method string, params, result any) error {
	if params == nil {
		params = struct{}{}
	}
	answer := make(chan response, 1)
	b.mu.Lock()
	b.last++
	data, err := json.Marshal(request{b.last, page, method, params})
	if err == nil {
		b.waiting[b.last] = answer
		_, err = b.in.Write(append(data, '\n'))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("browser: cannot %s: %w", method, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("browser: cannot %s: %w", method, ctx.Err())
	case <-b.ended:
		return fmt.Errorf("browser: cannot %s: the browser has ended", method)
	case r := <-answer:
		if r.Error != "" {
			return fmt.Errorf("browser: cannot %s: %s", method, r.Error)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(r.Result, result)
	}
}

// Close ends the browser.
func (b *Browser) Close() error {
	b.mu.Lock()
	err := b.in.Close()
	b.mu.Unlock()
	<-b.ended
	if waited := b.cmd.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("the browser failed: %w\n%s", waited, &b.stderr))
	}
	return err
}
