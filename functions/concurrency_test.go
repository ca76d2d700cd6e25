package functions_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/internal/testkit/poll"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// barrier stops all callers of pass until it is opened.
type barrier struct {
	arrived chan struct{}
	opened  chan struct{}
	once    sync.Map // the names that have arrived
}

func newBarrier() *barrier {
	return &barrier{arrived: make(chan struct{}, 100), opened: make(chan struct{})}
}

// pass counts each name once. A function repeats a request that takes too long.
func (b *barrier) pass(name string) {
	select {
	case <-b.opened:
		return
	default:
	}
	if _, repeated := b.once.LoadOrStore(name, true); !repeated {
		b.arrived <- struct{}{}
	}
	<-b.opened
}

// await waits until count have arrived.
func (b *barrier) await(t *testing.T, what string, count int) {
	t.Helper()
	for i := range count {
		select {
		case <-b.arrived:
		case <-time.After(time.Minute):
			t.Fatalf("%s: %d of %d have begun", what, i, count)
		}
	}
}

// In a new account, Lambda runs ten functions at once. While inspections and copies
// run at their limits, every read is answered. Further copies and inspections wait
// without a function, and are made later.
func TestReadsBesideWork(t *testing.T) {
	t.Parallel()
	const inspections, copies, waiting = 2, 2, 3
	account := lambda.NewAccount(10)
	worker := settings.Pull{Copies: copies}.Environment()
	maps.Copy(worker, settings.MetricsEnvironment("larder"))
	d := deployPullIn(t, account, worker)
	d.publish(t, "acme/vpc/aws", "1.0.0", "")
	reading, copying := newBarrier(), newBarrier()
	d.origin.hold(func() { copying.pass(rand.Text()) })
	publishing := maps.Clone(d.env)
	limits := settings.DefaultPublishLimits
	limits.AllInspections = inspections
	maps.Copy(publishing, limits.Environment())
	publishing["AWS_ENDPOINT_URL_S3"] = holdReads(t, d.s3.URL, reading)
	pools := make(map[string]*lambda.Pool)
	for name, env := range map[string]map[string]string{
		"discovery": nil, "modules": d.env, "providers": d.env, "metadata": d.env, "web": d.env, "mirror": d.invoking,
		"publish": publishing,
	} {
		pools[name] = newPool(t, account, name, env)
	}
	d.gateway = lambda.StartGateway(routes(pools))
	t.Cleanup(d.gateway.Close)
	var work sync.WaitGroup
	var inspects []func() (status int, err error)
	for i := range inspections + waiting {
		inspects = append(inspects, d.uploaded(t, fmt.Sprintf("acme/m/s%d", i)))
	}
	for _, inspect := range inspects[:inspections] {
		work.Go(func() {
			if status, err := inspect(); err != nil || status != http.StatusOK {
				t.Errorf("an inspection: %d, %v", status, err)
			}
		})
	}
	reading.await(t, "inspections", inspections)
	hosts := append([]string{""}, pullHosts[:waiting+copies-1]...)
	for i, host := range hosts {
		path := "/v1/mirror/" + host + "open.example.com/acme/note/1.0.0.json"
		reader := d // each caller leaves a copy to others
		reader.token = addToken(t, d.catalog, "read:mirror/**")
		if response, body := reader.get(t, path); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", path, response.Status, body)
		}
		if i == copies-1 {
			copying.await(t, "copies", copies)
		}
	}
	for _, inspect := range inspects[inspections:] {
		if status, err := inspect(); err != nil || status != http.StatusAccepted {
			t.Errorf("an inspection without a slot: %d, %v, want 202", status, err)
		}
	}
	// What waits has ended without a function.
	poll.Until(t, "only inspections and copies run", func() bool {
		return strings.Count(d.log(), `"message":"reached a bound of the mirror"`) == waiting &&
			account.Running() == inspections+copies
	})
	d.readEverything(t)
	select {
	case <-copying.arrived:
		t.Errorf("more than %d copies run at once", copies)
	case <-reading.arrived:
		t.Errorf("more than %d inspections run at once", inspections)
	default:
	}
	close(reading.opened)
	close(copying.opened)
	work.Wait()
	for _, inspect := range inspects[inspections:] {
		if status, err := inspect(); err != nil || status != http.StatusOK {
			t.Errorf("an inspection after the others: %d, %v", status, err)
		}
	}
	d.api.Wait()
	for _, host := range hosts {
		p, err := registry.ParseMirrorProvider(host + "open.example.com/acme/note")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.catalog.Mirror.Get(t.Context(), p, registry.Version{Major: 1}); err != nil {
			t.Errorf("%s was not copied: %v", p, err)
		}
	}
	if dropped := d.api.Dropped(); len(dropped) > 0 {
		t.Errorf("dropped: %v", dropped)
	}
	// The query of the runbook has these fields.
	logged := regexp.MustCompile(`"message":"reached a bound of the mirror","bound":"slots","origin":"127.0.0.1:\d+","caller":"[0-9a-f]{12}","provider":`)
	if !logged.MatchString(d.log()) {
		t.Error("the log does not have that copies found no slot")
	}
	if !strings.Contains(d.log(), `{"MirrorBounds":1,`) {
		t.Error("nothing counts that copies found no slot")
	}
}

// newPool returns a function of an account.
func newPool(t *testing.T, account *lambda.Account, name string, env map[string]string) *lambda.Pool {
	t.Helper()
	dist, err := built()
	if err != nil {
		t.Fatal(err)
	}
	timeout := lambda.FunctionTimeout
	if name == "publish" {
		timeout = 15 * time.Minute
	}
	ctx := context.WithoutCancel(t.Context())
	p := lambda.NewPool(lambda.Deployed{Concurrency: 10, Start: func(context.Context) (*lambda.Function, error) {
		return lambda.StartFunction(ctx, name, filepath.Join(dist, name, "bootstrap"), env, timeout)
	}}, account)
	t.Cleanup(p.Close)
	return p
}

// holdReads starts a proxy of S3 that stops reads of archives at a barrier.
func holdReads(t *testing.T, target string, b *barrier) string {
	t.Helper()
	proxy := proxyTo(t, target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.Header.Get("Range") != "" {
			b.pass(r.URL.Path)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// uploaded begins a publish of a module by an identity of its own, and uploads its
// archive. It returns a function that requests the inspection.
func (d deployed) uploaded(t *testing.T, address string) func() (status int, err error) {
	t.Helper()
	m, err := registry.ParseModule(address)
	if err != nil {
		t.Fatal(err)
	}
	packed := packLarge(t, m)
	token := addToken(t, d.catalog, "publish:*/acme/**")
	inspect := uploader{d.gateway.Client(), "https://" + d.gateway.Host, token}.upload(t, m, "1.0.0", packed)
	return func() (int, error) {
		status, body, err := inspect()
		if status != http.StatusOK && status != http.StatusAccepted {
			err = fmt.Errorf("%w %s", err, body)
		}
		return status, err
	}
}

// uploader publishes archives without the checks of a client.
type uploader struct {
	client     *http.Client
	url, token string
}

func (u uploader) post(t *testing.T, path, body string) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+u.token)
	r.Header.Set("Content-Type", "application/json")
	response, err := u.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// upload uploads the archive of a module. It returns a function that requests the
// inspection.
func (u uploader) upload(t *testing.T, m registry.Module, version string, packed []byte) (
	inspect func() (status int, answer []byte, err error),
) {
	t.Helper()
	up := &upload{path: "/v1/publish/" + m.Path() + "/" + version + "/uploads", packed: packed}
	_, begun, err := u.post(t, up.path, up.body())
	if err == nil {
		err = up.put(t, u.client, string(begun))
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() (int, []byte, error) { return u.post(t, up.path+"/"+up.begun.Upload+"/inspect", "") }
}

// readEverything sends reads of each kind, four at once.
func (d deployed) readEverything(t *testing.T) {
	t.Helper()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 10 {
				for path, want := range map[string]int{
					"/.well-known/terraform.json": 200, "/v1/modules/acme/vpc/aws/versions": 200,
					"/v1/modules/acme/vpc/aws/1.0.0/download": 204, "/v1/modules": 200, "/setup": 200,
					"/v1/mirror/open.example.com/acme/note/index.json": 200, "/v1/providers/acme/none/versions": 404,
				} {
					if status, err := d.status(t.Context(), path); err != nil || status != want {
						t.Errorf("%s: %d, %v, want %d", path, status, err, want)
					}
				}
			}
		})
	}
	readers.Wait()
}

// status returns the status of a response, which may lead elsewhere. It may be
// called in any goroutine.
func (d deployed) status(ctx context.Context, path string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+d.gateway.Host+path, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	response, err := d.gateway.Client().Transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
