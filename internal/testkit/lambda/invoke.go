package lambda

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/awstest"
)

// API is Lambda's API for invoking functions. It checks the signature of each
// request, and fails with Lambda's errors. The invocation types are
// RequestResponse and Event.
//
// Sources: https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html;
// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html.
type API struct {
	// URL is the endpoint of the service.
	URL string

	options APIOptions
	ctx     context.Context //nolint:containedctx // work outlives the requests that start it
	server  *httptest.Server
	pools   map[string]*Pool
	work    sync.WaitGroup

	mu      sync.Mutex
	dropped []Dropped
}

// APIOptions are the options of [StartAPI].
type APIOptions struct {
	// Region is the region of requests. If empty, it is that of package awstest.
	Region string
	// Functions are the functions, by name.
	Functions map[string]Deployed
	// Permit returns an error if the principal with an access key must not invoke
	// a function. If nil, all principals may invoke all functions.
	Permit func(accessKey, function string) error
	// Account limits the events of all its functions together. If nil, there is no
	// such limit.
	Account *Account
	// RetryWait is the time before the first retry of a failed event. The second
	// retry waits twice as long. If 0, it is a minute, as in Lambda.
	RetryWait time.Duration
}

// Deployed is a function that an [API] can invoke.
type Deployed struct {
	// Start starts a process of the function.
	Start func(context.Context) (*Function, error)
	// Concurrency is the maximum number of processes. Each of them works on one
	// event at a time.
	Concurrency int
}

// Dropped is an event that failed on all attempts, as an on-failure destination
// receives it.
type Dropped struct {
	Function string
	Payload  []byte
	Err      error // of the last attempt
}

const (
	// maxRequest and maxEvent are the maximum sizes of the payload of a
	// synchronous and of an asynchronous invocation, in bytes.
	maxRequest, maxEvent = 6 << 20, 1 << 20
	// eventAttempts is how often Lambda sends an event that fails.
	eventAttempts = 3
)

// StartAPI starts the API. Processes of functions start with the first event
// that needs one. If ctx ends, they are killed, and no event is retried. The
// caller closes the API.
func StartAPI(ctx context.Context, o APIOptions) *API {
	if o.RetryWait == 0 {
		o.RetryWait = time.Minute
	}
	a := &API{options: o, ctx: ctx, pools: make(map[string]*Pool)}
	for name, f := range o.Functions {
		a.pools[name] = NewPool(f, o.Account)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /2015-03-31/functions/{name}/invocations", a.serveInvoke)
	a.server = httptest.NewServer(mux)
	a.URL = a.server.URL
	return a
}

// Close waits until no work is left, including retries of events. Then it stops
// the API and its functions.
func (a *API) Close() {
	a.Wait()
	a.server.Close()
	a.Wait() // for work that a request has begun meanwhile
	for _, p := range a.pools {
		p.Close()
	}
}

// Wait waits until no work is left, including retries of events.
func (a *API) Wait() { a.work.Wait() }

// Processes returns the processes of a function that have been started.
func (a *API) Processes(function string) []*Function {
	if p := a.pools[function]; p != nil {
		return p.processes()
	}
	return nil
}

// Dropped returns the events that failed on all attempts.
func (a *API) Dropped() []Dropped {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.dropped)
}

// apiError is an error of Lambda's API.
type apiError struct {
	status        int
	code, message string
}

// Error implements error.
func (e apiError) Error() string { return e.code + ": " + e.message }

// write sends the error as Lambda does.
func (e apiError) write(w http.ResponseWriter) {
	w.Header().Set("X-Amzn-Errortype", e.code)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_ = json.NewEncoder(w).Encode(map[string]string{"Type": "User", "Message": e.message})
}

func (a *API) serveInvoke(w http.ResponseWriter, r *http.Request) {
	err := a.invoke(w, r)
	var failed apiError
	switch {
	case err == nil:
	case errors.As(err, &failed):
		failed.write(w)
	default:
		apiError{http.StatusInternalServerError, "ServiceException", err.Error()}.write(w)
	}
}

// invoke answers a request, unless it returns an error.
func (a *API) invoke(w http.ResponseWriter, r *http.Request) error {
	limit, inBackground := maxRequest, false
	switch kind := r.Header.Get("X-Amz-Invocation-Type"); kind {
	case "", "RequestResponse":
	case "Event":
		limit, inBackground = maxEvent, true
	default:
		return apiError{http.StatusBadRequest, "InvalidParameterValueException", "no invocation type " + kind}
	}
	payload, err := io.ReadAll(io.LimitReader(r.Body, int64(limit)+1))
	if err != nil {
		return err
	}
	if len(payload) > limit {
		return apiError{http.StatusRequestEntityTooLarge, "RequestEntityTooLargeException",
			fmt.Sprintf("Request must be smaller than %d bytes for the InvokeFunction operation", limit)}
	}
	name := functionName(r.PathValue("name"))
	accessKey, err := checkSignature(r, payload, cmp.Or(a.options.Region, awstest.Region))
	if err != nil {
		return err
	}
	if a.options.Permit != nil {
		if err := a.options.Permit(accessKey, name); err != nil {
			return apiError{http.StatusForbidden, "AccessDeniedException", err.Error()}
		}
	}
	p := a.pools[name]
	if p == nil {
		return apiError{http.StatusNotFound, "ResourceNotFoundException", "Function not found: " + arn(name)}
	}
	if len(payload) > 0 && !json.Valid(payload) {
		return apiError{http.StatusBadRequest, "InvalidRequestContentException", "Could not parse request body into json"}
	}
	if inBackground {
		a.work.Go(func() { a.deliver(name, p, payload) })
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	return a.request(w, p, payload)
}

// request answers with the response of a function. If no process is free, it
// returns an error.
func (a *API) request(w http.ResponseWriter, p *Pool, payload []byte) error {
	if !p.tryTake() {
		return apiError{http.StatusTooManyRequests, "TooManyRequestsException", "Rate Exceeded."}
	}
	done := make(chan result, 1)
	a.work.Go(func() { // even if the client closes the connection
		response, err := p.run(a.ctx, payload)
		p.free()
		done <- result{response, err}
	})
	r := <-done
	w.Header().Set("X-Amz-Executed-Version", "$LATEST")
	if r.err != nil {
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
		r.payload = errorPayload(r.err)
	}
	_, _ = w.Write(r.payload) // the client may have closed the connection
	return nil
}

// deliver sends an event to a function. It retries twice, and then drops the
// event.
func (a *API) deliver(name string, p *Pool, payload []byte) {
	var failed error
	for attempt := range eventAttempts {
		if attempt > 0 {
			select {
			case <-time.After(time.Duration(attempt) * a.options.RetryWait):
			case <-a.ctx.Done():
				return
			}
		}
		if !p.take(a.ctx) { // Lambda delays events of a function that is at its limit
			return
		}
		_, failed = p.run(a.ctx, payload)
		p.free()
		if failed == nil {
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropped = append(a.dropped, Dropped{name, payload, failed})
}

// errorPayload returns the response of an invocation that failed.
func errorPayload(err error) []byte {
	var returned functionError
	if errors.As(err, &returned) {
		return returned.payload
	}
	kind := "Runtime.ExitError"
	if errors.Is(err, context.DeadlineExceeded) {
		kind = "Sandbox.Timedout"
	}
	payload, err := json.Marshal(map[string]string{"errorType": kind, "errorMessage": err.Error()})
	if err != nil {
		return nil
	}
	return payload
}

func functionName(nameOrARN string) string {
	if _, name, found := strings.Cut(nameOrARN, ":function:"); found {
		name, _, _ = strings.Cut(name, ":")
		return name
	}
	return nameOrARN
}

func arn(name string) string {
	return "arn:aws:lambda:" + awstest.Region + ":000000000000:function:" + name
}

// Account is the concurrency of an account: how many events its functions work on
// at once.
type Account struct{ slots chan struct{} }

// NewAccount returns an account with a concurrency.
func NewAccount(concurrency int) *Account { return &Account{make(chan struct{}, concurrency)} }

// Running returns how many events its functions work on.
func (a *Account) Running() int { return len(a.slots) }

// errConcurrency means that a function or its account is at its limit.
var errConcurrency = errors.New("the concurrency is used up")

// Pool has the processes of a function.
type Pool struct {
	start func(context.Context) (*Function, error)
	// slots has one for each event that is being worked on, and account those of all
	// functions. account is nil if it has no limit.
	slots, account chan struct{}

	mu        sync.Mutex
	idle, all []*Function
}

// NewPool returns a function whose processes start when they are needed. The
// account may be nil. The caller closes the pool.
func NewPool(f Deployed, account *Account) *Pool {
	p := &Pool{start: f.Start, slots: make(chan struct{}, f.Concurrency)}
	if account != nil {
		p.account = account.slots
	}
	return p
}

// Invoke implements [Target]. If the function or the account is at its limit, it
// returns an error at once.
func (p *Pool) Invoke(ctx context.Context, event any) ([]byte, error) {
	payload, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	if !p.tryTake() {
		return nil, errConcurrency
	}
	done := make(chan result, 1)
	go func() { // the function continues after the gateway's timeout
		response, err := p.run(context.WithoutCancel(ctx), payload)
		p.free() // before the caller can send the next event
		done <- result{response, err}
	}()
	select {
	case r := <-done:
		return r.payload, r.err
	case <-time.After(gatewayTimeout):
		return nil, errGoesOn
	}
}

// tryTake takes a slot of the function and one of the account, unless one of them
// is at its limit.
func (p *Pool) tryTake() bool {
	select {
	case p.slots <- struct{}{}:
	default:
		return false
	}
	if p.account != nil {
		select {
		case p.account <- struct{}{}:
		default:
			<-p.slots
			return false
		}
	}
	return true
}

// take is like tryTake, but waits until ctx ends.
func (p *Pool) take(ctx context.Context) bool {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if p.account != nil {
		select {
		case p.account <- struct{}{}:
		case <-ctx.Done():
			<-p.slots
			return false
		}
	}
	return true
}

func (p *Pool) free() {
	<-p.slots
	if p.account != nil {
		<-p.account
	}
}

// Close stops the processes.
func (p *Pool) Close() {
	for _, f := range p.processes() {
		f.Close()
	}
}

// run sends an event to a process that is idle, or to a new one. The caller has
// a slot. A process that exits or exceeds its timeout is not used again.
func (p *Pool) run(ctx context.Context, payload []byte) ([]byte, error) {
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	for {
		f, err := p.process(ctx)
		if err != nil {
			return nil, err
		}
		limited, cancel := context.WithTimeout(ctx, f.timeout)
		response, err := f.run(limited, bytes.Clone(payload))
		cancel()
		var returned functionError
		if err == nil || errors.As(err, &returned) {
			p.mu.Lock()
			p.idle = append(p.idle, f)
			p.mu.Unlock()
			return response, err
		}
		f.Close()
		// A process can exit after it has returned an error for an earlier event.
		if !errors.Is(err, errNotReceived) || f.Polled().IsZero() {
			return nil, err
		}
	}
}

func (p *Pool) process(ctx context.Context) (*Function, error) {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		defer p.mu.Unlock()
		f := p.idle[last]
		p.idle = p.idle[:last]
		return f, nil
	}
	p.mu.Unlock()
	f, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, f)
	return f, nil
}

func (p *Pool) processes() []*Function {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}
