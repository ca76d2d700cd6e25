// Package lambda runs the binaries of functions with a server of the Lambda
// Runtime API, behind a gateway that behaves like API Gateway.
package lambda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/larder-registry/larder/internal/testkit/awstest"
)

// Function is a Lambda function. Its binary runs in its own process, with a
// server of the Lambda Runtime API.
//
// Source: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html.
type Function struct {
	name    string
	timeout time.Duration
	cmd     *exec.Cmd
	server  *http.Server
	events  chan invocation
	ended   chan struct{}
	endedBy error
	begun   time.Time

	mu      sync.Mutex
	polled  time.Time // zero until the first poll
	waiting map[string]chan result
	next    int

	// log has the function's output. It is a file and not a pipe, so that all
	// that the function wrote before a response is there with the response.
	log *os.File
}

type invocation struct {
	id      string
	payload []byte
}

type result struct {
	payload []byte
	err     error
}

const (
	// FunctionTimeout is the timeout of the stack's functions that read.
	FunctionTimeout = 10 * time.Second
	// gatewayTimeout is the timeout of API Gateway. A function with a longer
	// timeout continues after it.
	gatewayTimeout = 30 * time.Second
)

// errGoesOn means that the gateway has timed out, but the function continues.
var errGoesOn = errors.New("the gateway timed out, but the function continues")

// errNotReceived means that a function has not begun to work on an event.
var errNotReceived = errors.New("the event was not received")

// functionError is an error that a function returned.
type functionError struct {
	name    string
	payload []byte
}

// Error implements error.
func (e functionError) Error() string {
	return "function " + e.name + " returned an error: " + string(e.payload)
}

// StartFunction starts a function's binary with an environment, to which it
// adds Lambda's own variables. timeout is for each event. The caller closes the
// function.
func StartFunction(ctx context.Context, name, binary string, env map[string]string, timeout time.Duration) (*Function,
	error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &Function{name: name, timeout: timeout, events: make(chan invocation), ended: make(chan struct{}),
		waiting: make(map[string]chan result)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", f.serveNext)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", f.serveResult)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", f.serveResult)
	f.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = f.server.Serve(listener) }()

	f.cmd = exec.CommandContext(ctx, binary)
	f.cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + listener.Addr().String(), "AWS_LAMBDA_FUNCTION_NAME=" +
			name, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=256",
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST", "AWS_LAMBDA_LOG_FORMAT=JSON", "AWS_REGION=" +
			awstest.Region, "AWS_ACCESS_KEY_ID=" + awstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + awstest.SecretKey,
	}
	for name, value := range env {
		f.cmd.Env = append(f.cmd.Env, name+"="+value)
	}
	f.begun = time.Now()
	if err := f.start(); err != nil {
		_ = f.server.Close()
		return nil, fmt.Errorf("cannot start function %s: %w", name, err)
	}
	go func() {
		f.endedBy = f.cmd.Wait()
		close(f.ended)
	}()
	return f, nil
}

// start starts the process, with its output in a file that has no name.
func (f *Function) start() (err error) {
	if f.log, err = os.CreateTemp("", "log"); err != nil {
		return err
	}
	if err := os.Remove(f.log.Name()); err != nil {
		return errors.Join(err, f.log.Close())
	}
	f.cmd.Stdout, f.cmd.Stderr = f.log, f.log
	return f.cmd.Start()
}

// Log returns the function's output, also after the function was closed.
func (f *Function) Log() string {
	log, err := io.ReadAll(io.NewSectionReader(f.log, 0, math.MaxInt64))
	if err != nil {
		panic(err) // a file that this process has open can be read
	}
	return string(log)
}

// Process returns the ID of the function's process.
func (f *Function) Process() int { return f.cmd.Process.Pid }

// Ended reports whether the function's process has exited.
func (f *Function) Ended() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

// Begun returns the time when the function's process was started.
func (f *Function) Begun() time.Time { return f.begun }

// Polled returns the time when the function first requested an event. It is
// zero before that.
func (f *Function) Polled() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.polled
}

// Usage returns the peak memory of the function's process, in bytes, and its
// processor time, including that of its exited children. It works only on Linux
// and while the function runs.
func (f *Function) Usage() (peak int64, processor time.Duration, err error) {
	proc := filepath.Join("/proc", strconv.Itoa(f.cmd.Process.Pid))
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		return 0, 0, err
	}
	_, found, _ := strings.Cut(string(status), "VmHWM:")
	if _, err = fmt.Sscanf(found, "%d kB", &peak); err != nil {
		return 0, 0, err
	}
	// The kernel counts a thread's time in nanoseconds, but a process's time in
	// units of ten milliseconds.
	threads, err := filepath.Glob(filepath.Join(proc, "task", "*", "schedstat"))
	if err != nil {
		return 0, 0, err
	}
	for _, thread := range threads {
		var ran time.Duration
		text, err := os.ReadFile(thread)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has exited, which is rare in Go
		}
		if err != nil {
			return 0, 0, err
		}
		if _, err := fmt.Sscan(string(text), &ran); err != nil {
			return 0, 0, err
		}
		processor += ran
	}
	ofChildren, err := childrenTime(proc)
	return peak << 10, processor + ofChildren, err
}

// childrenTime returns the processor time of a process's exited children, to
// ten milliseconds.
func childrenTime(proc string) (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return 0, err
	}
	// The program's name ends with the last parenthesis. The time is in the
	// 16th and 17th fields, in hundredths of a second.
	const cutime = 16 - 3
	_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) <= cutime+1 {
		return 0, fmt.Errorf("%s/stat has %d fields", proc, len(fields))
	}
	user, err := strconv.ParseInt(fields[cutime], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[cutime+1], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// Close stops the function.
func (f *Function) Close() {
	_ = f.cmd.Process.Kill()
	<-f.ended
	_ = f.server.Close()
}

// Invoke sends one event to the function and returns its response. It returns
// an error if the function returns an error, exits or times out, or if API
// Gateway would time out. API Gateway answers 5xx in these cases.
func (f *Function) Invoke(ctx context.Context, event any) ([]byte, error) {
	payload, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	patience, tooLong := f.timeout, context.DeadlineExceeded
	if f.timeout > gatewayTimeout {
		patience, tooLong = gatewayTimeout, errGoesOn
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, tooLong)
	defer cancel()
	return f.run(ctx, payload)
}

// run sends one event to the function and returns its response. If the function
// exited before it received the event, the error is errNotReceived. If the
// function returned an error, it is a functionError.
func (f *Function) run(ctx context.Context, payload []byte) ([]byte, error) {
	f.mu.Lock()
	f.next++
	id := fmt.Sprintf("00000000-0000-0000-0000-%012d", f.next)
	done := make(chan result, 1)
	f.waiting[id] = done
	f.mu.Unlock()
	select {
	case f.events <- invocation{id, payload}:
	case <-f.ended:
		return nil, fmt.Errorf("%w: function %s has exited: %w\n%s", errNotReceived, f.name, f.endedBy, f.Log())
	case <-ctx.Done():
		return nil, fmt.Errorf("function %s requests no event: %w", f.name, ctx.Err())
	}
	select {
	case r := <-done:
		return r.payload, r.err
	case <-f.ended:
		return nil, fmt.Errorf("function %s has exited: %w\n%s", f.name, f.endedBy, f.Log())
	case <-ctx.Done():
		return nil, fmt.Errorf("function %s timed out: %w", f.name, context.Cause(ctx))
	}
}

func (f *Function) serveNext(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if f.polled.IsZero() {
		f.polled = time.Now()
	}
	f.mu.Unlock()
	select {
	case i := <-f.events:
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Lambda-Runtime-Aws-Request-Id", i.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(f.timeout).UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn",
			"arn:aws:lambda:"+awstest.Region+":000000000000:function:"+f.name)
		h.Set("Lambda-Runtime-Trace-Id", "Root=1-00000000-000000000000000000000000;Sampled=0")
		_, _ = w.Write(i.payload)
	case <-r.Context().Done():
	}
}

func (f *Function) serveResult(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(r.Body)
	if err == nil && strings.HasSuffix(r.URL.Path, "/error") {
		err = functionError{f.name, payload}
	}
	f.mu.Lock()
	done := f.waiting[r.PathValue("id")]
	delete(f.waiting, r.PathValue("id"))
	f.mu.Unlock()
	if done != nil {
		done <- result{payload, err}
	}
	w.WriteHeader(http.StatusAccepted)
}
