package functions_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// pullOrigin is a registry with the provider acme/note 1.0.0 for one platform.
type pullOrigin struct {
	*httptest.Server
	caFile string
	// second is the URL of another origin with the same content.
	second string

	// held is called before a package is sent. It may be nil.
	held func()

	mu       sync.Mutex
	requests []string
}

var pullPlatform = registry.Platform{OS: "linux", Arch: "amd64"}

// pullHosts begin the names of further hosts.
var pullHosts = []string{"a.", "b.", "c.", "d."}

func newPullOrigin(t *testing.T) *pullOrigin {
	t.Helper()
	key, err := keys.NewSigningKey("Ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := writeRelease(t, key, "1.0.0", map[string]int64{pullPlatform.String(): 100})
	const prefix = "/files/terraform-provider-note_1.0.0_"
	sums, err := os.ReadFile(filepath.Join(dir, filepath.Base(prefix)+"SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	sum, _, _ := strings.Cut(string(sums), " ")
	documents := map[string]any{
		"/.well-known/terraform.json": map[string]string{"providers.v1": "/v1/providers/"},
		"/v1/providers/acme/note/versions": protocol.ProviderListing{Versions: []protocol.ListedProvider{{
			Version: registry.Version{Major: 1}, Protocols: []string{"6.0"}, Platforms: []registry.Platform{pullPlatform},
		}}},
		"/v1/providers/acme/note/1.0.0/download/linux/amd64": protocol.ProviderDownload{
			Protocols: []string{"6.0"}, OS: pullPlatform.OS, Arch: pullPlatform.Arch,
			Filename: filepath.Base(prefix) + pullPlatform.String() + ".zip", SHASum: sum,
			DownloadURL: prefix + pullPlatform.String() + ".zip", SHASumsURL: prefix + "SHA256SUMS",
			SHASumsSignatureURL: prefix + "SHA256SUMS.sig",
			SigningKeys: protocol.ProviderKeys{
				GPGPublicKeys: []registry.PublicKey{{ASCIIArmor: string(key.Public)}},
			},
		},
	}
	files := http.StripPrefix("/files/", http.FileServer(http.Dir(dir)))
	o := &pullOrigin{}
	o.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.requests = append(o.requests, r.URL.Path+" "+r.UserAgent()+" "+r.Header.Get("Authorization"))
		o.mu.Unlock()
		if document := documents[r.URL.Path]; document != nil {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(document)
			return
		}
		if held := o.holding(); held != nil && strings.HasSuffix(r.URL.Path, ".zip") {
			held()
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(o.Close)
	second := httptest.NewTLSServer(o.Config.Handler)
	t.Cleanup(second.Close)
	o.second = second.URL
	o.caFile = filepath.Join(t.TempDir(), "origin.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw})
	if err := os.WriteFile(o.caFile, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *pullOrigin) holding() func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}

// hold makes the origin call a function before it sends a package.
func (o *pullOrigin) hold(held func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = held
}

// take returns the requests since its last call.
func (o *pullOrigin) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.requests
	o.requests = nil
	return asked
}

// pulling is a deployed registry whose mirror fetches what it lacks.
type pulling struct {
	deployed
	origin *pullOrigin
	api    *lambda.API
	// invoking is the environment of functions that invoke the worker.
	invoking map[string]string
}

// deployPull deploys a registry whose policy lets clients fetch providers. The
// hosts open.example.com and closed.example.com have the mode of their name, and so
// have hosts such as a.open.example.com. more are further variables of the worker.
func deployPull(t *testing.T, more map[string]string) pulling {
	t.Helper()
	return deployPullIn(t, nil, more)
}

// deployPullIn is like deployPull in an account, which may be nil.
func deployPullIn(t *testing.T, account *lambda.Account, more map[string]string) pulling {
	t.Helper()
	d := pulling{deployed: deploy(t), origin: newPullOrigin(t)}
	policy := registry.MirrorPolicy{Text: "test", SetAt: time.Now().UTC(), SetBy: "tests"}
	for _, mode := range []registry.PullMode{registry.PullOpen, registry.PullClosed} {
		for i, host := range append([]string{""}, pullHosts...) {
			upstream := d.origin.URL
			if i == 1 {
				upstream = d.origin.second
			}
			policy.Rules = append(policy.Rules, registry.MirrorRule{
				Pattern: host + string(mode) + ".example.com/*/*", Pull: mode, Upstream: upstream,
				Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			})
		}
	}
	if _, err := d.catalog.SetMirrorPolicy(t.Context(), policy, "test"); err != nil {
		t.Fatal(err)
	}
	dist, err := built()
	if err != nil {
		t.Fatal(err)
	}
	env := maps.Clone(d.env)
	maps.Copy(env, settings.Pull{Release: "v1.2.3"}.Environment())
	env["SSL_CERT_FILE"] = d.origin.caFile
	maps.Copy(env, more)
	folders := t.TempDir()
	var started atomic.Int32
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d.api = lambda.StartAPI(ctx, lambda.APIOptions{
		RetryWait: 10 * time.Millisecond, Account: account,
		Functions: map[string]lambda.Deployed{"larder-pull": {
			Concurrency: 5,
			Start: func(ctx context.Context) (*lambda.Function, error) {
				// Each process has a folder of its own, which it empties.
				own := maps.Clone(env)
				own["LARDER_PULL_FOLDER"] = filepath.Join(folders, strconv.Itoa(int(started.Add(1))))
				return lambda.StartFunction(ctx, "pull", filepath.Join(dist, "pull", "bootstrap"), own, 15*time.Minute)
			},
		}},
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("functions pull:\n%s", d.log())
		}
		cancel()
		d.api.Close()
	})
	d.invoking = settings.PullFunctionEnvironment("arn:aws:lambda:eu-central-1:000000000000:function:larder-pull")
	d.invoking["AWS_ENDPOINT_URL_LAMBDA"] = d.api.URL
	maps.Copy(d.invoking, d.env)
	functions := maps.Clone(d.functions)
	functions["mirror"] = start(t, "mirror", d.invoking)
	d.gateway = lambda.StartGateway(routes(functions))
	t.Cleanup(d.gateway.Close)
	return d
}

// log returns what all processes of the worker have logged.
func (d pulling) log() string {
	var all strings.Builder
	for _, f := range d.api.Processes("larder-pull") {
		all.WriteString(f.Log())
	}
	return all.String()
}

// signedURL matches a presigned URL of a package in the bucket.
var signedURL = regexp.MustCompile(`^http://[^/]+/larder-objects/mirror/[a-z.]+/acme/note/1\.0\.0/[0-9a-f]{64}/[^?]+\?.*X-Amz-Signature=`)

// archive returns where a client gets the only package of a version, and the
// kinds of its hashes. Both are empty if the version has none.
func (d pulling) archive(t *testing.T, path string) (url string, hashes []string) {
	t.Helper()
	response, body := d.get(t, path)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s", path, response.Status, body)
	}
	var packages protocol.MirrorPackages
	if err := json.Unmarshal([]byte(body), &packages); err != nil {
		t.Fatal(err)
	}
	a := packages.Archives[pullPlatform.String()]
	for _, h := range a.Hashes {
		kind, _, _ := strings.Cut(h, ":")
		hashes = append(hashes, kind)
	}
	return a.URL, hashes
}

// pullIndex is the answer for index.json.
const pullIndex = `{"versions":{"1.0.0":{}},"verifiable":[{"platforms":[{"os":"linux","arch":"amd64"}],"versions":["1.0.0"]}]}` + "\n"

// Clients get a provider through functions that lack it. In open mode they get
// it from its origin until it is copied. In closed mode they wait for the copy.
func TestPull(t *testing.T) {
	t.Parallel()
	d := deployPull(t, nil)
	for _, mode := range []string{"open", "closed"} {
		path := "/v1/mirror/" + mode + ".example.com/acme/note/"
		response, body := d.get(t, path+"index.json")
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: versions: %s %s", mode, response.Status, body)
		}
		if diff := cmp.Diff(pullIndex, body); diff != "" {
			t.Fatalf("%s: versions (-want +got):\n%s", mode, diff)
		}
		url, hashes := d.archive(t, path+"1.0.0.json")
		if mode == "open" {
			if want := d.origin.URL + "/files/terraform-provider-note_1.0.0_linux_amd64.zip"; url != want {
				t.Errorf("cold, open: %s, want %s", url, want)
			}
			if diff := cmp.Diff([]string{"zh"}, hashes); diff != "" {
				t.Errorf("cold, open: hashes: %s", diff)
			}
			d.api.Wait() // for the copy
			url, hashes = d.archive(t, path+"1.0.0.json")
		}
		if !signedURL.MatchString(url) {
			t.Errorf("%s: %.120s, want a package in the bucket", mode, url)
		}
		if diff := cmp.Diff([]string{"h1", "zh"}, hashes); diff != "" {
			t.Errorf("%s: hashes: %s", mode, diff)
		}
		if got := statusOf(t, url); got != http.StatusOK {
			t.Errorf("%s: the package: status %d", mode, got)
		}
	}
	d.api.Wait()
	for _, asked := range d.origin.take() {
		if !strings.HasSuffix(asked, " larder/v1.2.3 ") {
			t.Errorf("an origin got %s", asked)
		}
	}
	t.Run("warm", d.testWarm)
	t.Run("nightly", d.testNightly)
	t.Run("log", d.testLog)
	if dropped := d.api.Dropped(); len(dropped) > 0 {
		t.Errorf("dropped: %v", dropped)
	}
}

func statusOf(t *testing.T, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// A request for a stored answer costs one read of one item.
func (d pulling) testWarm(t *testing.T) {
	for _, mode := range []string{"open", "closed"} {
		path := "/v1/mirror/" + mode + ".example.com/acme/note/"
		d.dynamo.Reads()
		_, body := d.get(t, path+"index.json")
		if diff := cmp.Diff(pullIndex, body); diff != "" {
			t.Errorf("%s: versions (-want +got):\n%s", mode, diff)
		}
		d.checkOneRead(t, mode+", versions")
		url, hashes := d.archive(t, path+"1.0.0.json")
		if !signedURL.MatchString(url) {
			t.Errorf("%s: %.120s, want a package in the bucket", mode, url)
		}
		if diff := cmp.Diff([]string{"h1", "zh"}, hashes); diff != "" {
			t.Errorf("%s: hashes (-want +got):\n%s", mode, diff)
		}
		d.checkOneRead(t, mode+", packages")
	}
	if asked := d.origin.take(); len(asked) > 0 {
		t.Errorf("the origin got %q", asked)
	}
}

// checkOneRead checks that the table was read once since the last call.
func (d pulling) checkOneRead(t *testing.T, name string) {
	t.Helper()
	reads := d.dynamo.Reads()
	reads.Units, reads.Bytes = 0, 0
	if diff := cmp.Diff(dynamodbtest.Reads{GetItem: 1}, reads); diff != "" {
		t.Errorf("%s: reads (-want +got):\n%s", name, diff)
	}
}

// The event of the nightly rule makes the worker look at each provider again.
func (d pulling) testNightly(t *testing.T) {
	event, err := json.Marshal(protocol.PullRequest{Action: protocol.PullNightly})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"action":"nightly"}`, string(event)); diff != "" {
		t.Errorf("the event: %s", diff)
	}
	processes := d.api.Processes("larder-pull")
	if len(processes) == 0 {
		t.Fatal("no process")
	}
	if _, err := processes[0].Invoke(t.Context(), protocol.PullRequest{Action: protocol.PullNightly}); err != nil {
		t.Fatal(err)
	}
	looks := 0
	for _, asked := range d.origin.take() {
		if strings.HasPrefix(asked, "/v1/providers/acme/note/versions ") {
			looks++
		}
	}
	if looks != 2 {
		t.Errorf("%d looks at the versions, want 2", looks)
	}
}

// The worker's log has the fields that queries use, and no secret.
func (d pulling) testLog(t *testing.T) {
	queries, err := os.ReadFile("../infra/testdata/queries.golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	log := d.log()
	fields := make(map[string]bool)
	for line := range strings.Lines(log) {
		var members map[string]any
		if err := json.Unmarshal([]byte(line), &members); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		if members["message"] == "copied a version" {
			maps.Copy(fields, keysOf(members))
		}
		if n := strings.Count(line, `"timestamp"`); n != 1 {
			t.Errorf("%d timestamps: %s", n, line)
		}
	}
	fields["error"] = true  // that of a copy that fails
	fields["module"] = true // instead of the provider
	used := 0
	for query := range strings.SplitSeq(string(queries), "\n\n") {
		if !strings.HasPrefix(query, pullQuery) {
			continue
		}
		for _, name := range fieldsOf(query) {
			used++
			if !fields[name] {
				t.Errorf("a query uses the field %q, but the worker logs only %q", name, slices.Sorted(maps.Keys(fields)))
			}
		}
	}
	if used < 5 {
		t.Errorf("queries use %d fields", used)
	}
	for _, secret := range []string{d.token, "X-Amz-Signature", `"level":"ERROR"`} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %s:\n%s", secret, log)
		}
	}
}

// Many clients of an empty mirror use several processes at once. The mirror copies
// the package once, and requests each document of its origin at most twice.
func TestPullAtOnce(t *testing.T) {
	t.Parallel()
	const clients, processes = 20, 4 // the worker has a process for each, and one for the copy
	d := deployPull(t, nil)
	d.gateway = lambda.StartGateway(routes(map[string]*lambda.Pool{"mirror": newPool(t, nil, "mirror", d.invoking)}))
	t.Cleanup(d.gateway.Close)
	for _, mode := range []string{"open", "closed"} {
		path := "/v1/mirror/" + mode + ".example.com/acme/note/"
		var running sync.WaitGroup
		free := make(chan struct{}, processes)
		for range clients {
			running.Go(func() {
				free <- struct{}{}
				defer func() { <-free }()
				for _, document := range []string{"index.json", "1.0.0.json"} {
					if status, err := d.status(t.Context(), path+document); err != nil || status != http.StatusOK {
						t.Errorf("%s: %s: %d, %v", mode, document, status, err)
					}
				}
			})
		}
		running.Wait()
		d.api.Wait()
		requests := make(map[string]int)
		for _, received := range d.origin.take() {
			requests[strings.Fields(received)[0]]++
		}
		for path, n := range requests {
			if n > 2 || n > 1 && strings.HasSuffix(path, ".zip") {
				t.Errorf("%s: the origin got %d requests for %s", mode, n, path)
			}
		}
		url, _ := d.archive(t, path+"1.0.0.json")
		if !signedURL.MatchString(url) {
			t.Errorf("%s: %.120s, want a package in the bucket", mode, url)
		}
	}
	if copies := strings.Count(d.log(), `"message":"copied a version"`); copies != 2 {
		t.Errorf("%d copies, want one for each mode", copies)
	}
	if dropped := d.api.Dropped(); len(dropped) > 0 {
		t.Errorf("dropped: %v", dropped)
	}
}

// A copy that fails is tried three times, and then dropped. In open mode, clients
// get the version from its origin meanwhile.
func TestPullFails(t *testing.T) {
	t.Parallel()
	d := deployPull(t, map[string]string{"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"})
	url, _ := d.archive(t, "/v1/mirror/open.example.com/acme/note/1.0.0.json")
	if !strings.HasPrefix(url, d.origin.URL) {
		t.Errorf("%s, want one of the origin", url)
	}
	d.api.Wait()
	dropped := d.api.Dropped()
	if len(dropped) != 1 {
		t.Fatalf("%d requests dropped, want 1", len(dropped))
	}
	var request protocol.PullRequest
	if err := json.Unmarshal(dropped[0].Payload, &request); err != nil {
		t.Fatal(err)
	}
	policy, err := d.catalog.MirrorPolicy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := protocol.PullRequest{Action: protocol.PullCopy, Address: "open.example.com/acme/note", Version: "1.0.0",
		PolicySetAt: policy.SetAt, Caller: mirror.CallerID("token tests")}
	if diff := cmp.Diff(want, request); diff != "" {
		t.Errorf("the dropped request (-want +got):\n%s", diff)
	}
	if n := strings.Count(d.log(), `"message":"copied a version"`); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
	for i, f := range d.api.Processes("larder-pull") {
		if f.Ended() {
			t.Errorf("process %d of the worker has ended", i)
		}
	}
}

// An event that the worker does not understand is an error, and does not end the
// process.
func TestPullEvents(t *testing.T) {
	t.Parallel()
	d := deployPull(t, nil)
	f := start(t, "pull", d.env)
	for name, event := range map[string]any{
		"null": nil, "a list": []any{}, "nothing": map[string]any{}, "no action": map[string]any{"address": "a.b/c/d"},
		"another action": map[string]any{"action": "x", "address": "a.b/c/d", "version": "1.0.0"},
		"no address":     map[string]any{"action": "index"}, "no version": map[string]any{"action": "copy", "address": "a.b/c/d"},
		"odd address":   map[string]any{"action": "index", "address": "\x00/../" + strings.Repeat("a", 9000)},
		"odd time":      map[string]any{"action": "index", "deadline": "soon"},
		"a type":        map[string]any{"action": 1},
		"scheduled one": map[string]any{"source": "aws.events", "detail-type": "Scheduled Event"},
	} {
		if response, err := f.Invoke(t.Context(), event); err == nil {
			t.Errorf("%s: no error, but %s", name, response)
		}
		if f.Ended() {
			t.Fatalf("%s: the process has ended", name)
		}
	}
	// If the policy does not let clients fetch a provider, nothing happens.
	allowed := protocol.PullRequest{Action: protocol.PullIndex, Address: "other.example.com/acme/note"}
	response, err := f.Invoke(t.Context(), allowed)
	if err != nil {
		t.Errorf("a provider without a rule: %v", err)
	}
	if string(response) != "{}" {
		t.Errorf("a provider without a rule: the response is %s, want {}", response)
	}
	if asked := d.origin.take(); len(asked) > 0 {
		t.Errorf("the origin got %q", asked)
	}
}

// The temporary folder of a process that was killed is emptied by the next one.
func TestPullFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "larder")
	left := filepath.Join(folder, "left", "package.zip")
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := settings.Settings{Table: "t", Bucket: "b", PresignLifetime: time.Hour}.Environment()
	maps.Copy(env, settings.Pull{Folder: folder}.Environment())
	f := start(t, "pull", env)
	// It has a started process when it answers.
	if response, err := f.Invoke(t.Context(), map[string]any{"action": "x", "address": "a"}); err == nil {
		t.Errorf("no error, but %s", response)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 {
		t.Errorf("the folder has %v", fmt.Sprint(entries))
	}
}
