package functions_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/internal/testkit/stock"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// span is the time from the first beginning to the last end.
type span struct {
	mu         sync.Mutex
	begin, end time.Time
}

func (s *span) add(begin time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begin.IsZero() || begin.Before(s.begin) {
		s.begin = begin
	}
	s.end = time.Now()
}

func (s *span) seconds() float64 { return s.end.Sub(s.begin).Seconds() }

// watched are the requests of a client: uploads, inspections and commits.
type watched struct {
	http.RoundTripper
	upload, inspect, commit span
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	response, err := w.RoundTripper.RoundTrip(r)
	switch {
	case r.Method == http.MethodPut:
		w.upload.add(begun)
	case strings.HasSuffix(r.URL.Path, "/inspect"):
		w.inspect.add(begun)
	case strings.HasSuffix(r.URL.Path, "/commit"):
		w.commit.add(begun)
	}
	return response, err
}

// putting contains the uploads of a publisher with AWS credentials.
type putting struct {
	publish.Objects
	upload span
}

func (p *putting) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	defer p.upload.add(time.Now())
	return p.Objects.PutOnce(ctx, key, body, digest)
}

// again is a release of the same zips under another version.
func again(t *testing.T, key keys.SigningKey, dir, version string) string {
	t.Helper()
	to := t.TempDir()
	const first = "_1.0.0_"
	entries, err := filepath.Glob(filepath.Join(dir, "*.zip"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "terraform-provider-note"+first+"SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	var ofZips strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(string(sums), first, "_"+version+"_")) {
		if strings.HasSuffix(line, ".zip\n") {
			ofZips.WriteString(line)
		}
	}
	for _, path := range entries {
		if err := os.Link(path,
			filepath.Join(to, strings.ReplaceAll(filepath.Base(path), first, "_"+version+"_"))); err != nil {
			t.Fatal(err)
		}
	}
	finishRelease(t, key, to, "terraform-provider-note_", version, ofZips.String())
	return to
}

// inFunction returns the logged duration of a function's requests whose paths
// have a suffix.
func inFunction(t *testing.T, f *lambda.Function, suffix string) (seconds float64) {
	t.Helper()
	for line := range strings.Lines(f.Log()) {
		var request struct {
			Path         string  `json:"path"`
			Milliseconds float64 `json:"duration_ms"`
		}
		// Other lines have no request.
		if json.Unmarshal([]byte(line), &request) == nil && strings.HasSuffix(request.Path, suffix) {
			seconds += request.Milliseconds / 1000
		}
	}
	if seconds == 0 {
		t.Errorf("the function has logged no time for requests of …%s", suffix)
	}
	return seconds
}

// childWatch measures the memory of a process's children, which inspect the
// uploads.
type childWatch struct {
	stop, ended chan struct{}
	peak        int64 // of all that ran at once, in bytes
}

func watchChildren(process int) *childWatch {
	w := &childWatch{stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			w.peak = max(w.peak, childrenMemory(process))
			select {
			case <-tick.C:
			case <-w.stop:
				return
			}
		}
	}()
	return w
}

// end returns the peak.
func (w *childWatch) end() int64 {
	close(w.stop)
	<-w.ended
	return w.peak
}

// childrenMemory returns the sum of the peak memory of a process's children.
func childrenMemory(process int) (bytes int64) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", process)) // the pattern is valid
	for _, thread := range threads {
		children, _ := os.ReadFile(thread) // a thread that has ended has no children
		for _, child := range strings.Fields(string(children)) {
			status, _ := os.ReadFile("/proc/" + child + "/status")
			_, found, _ := strings.Cut(string(status), "VmHWM:")
			var kib int64
			if _, err := fmt.Sscanf(found, "%d kB", &kib); err == nil {
				bytes += kib << 10
			}
		}
	}
	return bytes
}

const (
	// mb is the unit of provider sizes.
	mb = 1000 * 1000
	// The stack's settings for the publish function.
	publishMemory = 512
	// A Lambda function with 1769 MiB has a whole processor.
	processorMemory = 1769
)

// publishing publishes the same files in several ways to the same emulators.
type publishing struct {
	deployed
	store   *s3.Store
	env     map[string]string // of the publish function
	key     keys.SigningKey
	address registry.Provider
}

// clear deletes the objects of a run. This makes room, and the system need not
// write them to disk during the next run.
func (p publishing) clear(t *testing.T) {
	t.Helper()
	client := awss3.NewFromConfig(awstest.Config(p.s3.URL), func(o *awss3.Options) { o.UsePathStyle = true })
	err := p.store.Walk(t.Context(), "providers/", func(i objects.Info) error {
		bucket := "larder-objects"
		_, err := client.DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: &bucket, Key: &i.Key})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// prepared returns a release as the command line sends it.
func (p publishing) prepared(t *testing.T, dir string) *rules.PreparedProvider {
	t.Helper()
	release, err := rules.Preparer{}.Provider(t.Context(), rules.Provider{Dir: dir, Address: p.address})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// withCredentials publishes with AWS credentials.
func (p publishing) withCredentials(t *testing.T, dir string) (upload float64) {
	t.Helper()
	defer p.clear(t)
	objects := &putting{Objects: p.store}
	begun := time.Now()
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "operator"}
	publisher := publish.Publisher{Catalog: p.catalog, Objects: objects, By: by}
	if _, err := publisher.Provider(t.Context(), rules.Provider{Dir: dir, Address: p.address}); err != nil {
		t.Fatal(err)
	}
	t.Logf("  with AWS credentials: upload %6.2f s; all %6.2f s", objects.upload.seconds(), time.Since(begun).Seconds())
	return objects.upload.seconds()
}

// uploadOnly uploads zips, as many at once as the other ways, and publishes
// nothing.
func (p publishing) uploadOnly(t *testing.T, dir string) (upload float64) {
	t.Helper()
	defer p.clear(t)
	release := p.prepared(t, dir)
	begun := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(4)
	for _, pkg := range release.Record.Packages {
		group.Go(func() error {
			f, err := os.Open(filepath.Join(dir, pkg.Filename))
			if err != nil {
				return err
			}
			defer f.Close()
			return p.store.PutOnce(ctx, pkg.Object, f, objects.Digest{SHA256: pkg.SHA256, Size: pkg.Size})
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	upload = time.Since(begun).Seconds()
	t.Logf("  nothing but the zips: upload %6.2f s", upload)
	return upload
}

// withRegistry publishes through the registry. It checks the memory of the function
// and of its children.
func (p publishing) withRegistry(t *testing.T, dir string) (upload float64) {
	t.Helper()
	const memory = publishMemory << 20
	defer p.clear(t)
	f := start(t, "publish", p.env)
	defer f.Close()
	children := watchChildren(f.Process())
	w := &watched{}
	client := p.publishAPI(t, f, func(next http.RoundTripper) http.RoundTripper { w.RoundTripper = next; return w })
	client.Interval = 0
	begun := time.Now()
	if _, err := client.Provider(t.Context(), p.prepared(t, dir)); err != nil {
		t.Fatal(err)
	}
	all := time.Since(begun).Seconds()
	ofChildren := children.end()
	peak, processor, err := f.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if ofChildren == 0 {
		t.Error("no child of the function was seen, and so its memory is not known")
	}
	t.Logf(
		"  through the registry: upload %6.2f s; all %6.2f s, of which inspect %.2f s (in the function %.2f s) and "+
			"commit %.2f s; the function: peak memory %d MiB, of its children %d MiB, %.2f s of a processor, which %d MiB "+
			"of Lambda have in %.1f s", w.upload.seconds(), all, w.inspect.seconds(), inFunction(t, f, "/inspect"),
		w.commit.seconds(), peak>>20, ofChildren>>20, processor.Seconds(), publishMemory,
		processor.Seconds()*processorMemory/publishMemory)
	if peak += ofChildren; peak > memory/2 {
		t.Errorf("the function's peak memory and that of its children is %d MiB, more than half of what it has", peak>>20)
	}
	return w.upload.seconds()
}

// killed kills the function when it begins to read an archive.
func (p publishing) killed(t *testing.T, dir string) {
	t.Helper()
	k := &killer{}
	env := maps.Clone(p.env)
	env["AWS_ENDPOINT_URL_S3"] = k.watch(t, env["AWS_ENDPOINT_URL_S3"])
	f := start(t, "publish", env)
	k.begin(f, 1, false)
	_, err := p.publishAPI(t, f, direct).Provider(t.Context(), p.prepared(t, dir))
	if !errors.Is(err, registry.ErrUnavailable) {
		t.Fatalf("the function is killed, and a publish: %v", err)
	}
}

// TestPublishAPI compares publishing through the registry with publishing
// with AWS credentials, and with only uploading the zips. All use the same
// files and emulators. Uploads must not take longer than the bounds allow. The
// memory of the function and of its children must not grow with the files.
// scripts/bench runs it.
func TestPublishAPI(t *testing.T) {
	if os.Getenv("LARDER_BENCH") == "" {
		t.Skip("scripts/bench runs it")
	}
	const bound, runs = 1.15, 5
	d := deploy(t)
	d.functions["publish"].Close()
	p := publishing{
		deployed: d, store: s3.New(awstest.Config(d.s3.URL), "larder-objects", s3.Options{PathStyle: true}),
		env: maps.Clone(d.env), key: d.signer(t), address: registry.Provider{Namespace: "acme", Type: "note"},
	}
	p.env["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] = fmt.Sprint(publishMemory)
	large := writeRelease(t, p.key, "1.0.0", map[string]int64{"linux_amd64": 500 * mb})
	t.Logf("one zip of 500 MB")
	p.withRegistry(t, large)
	t.Logf("the same; the function is killed in the inspection, and this is publishing again")
	large = again(t, p.key, large, "1.0.1")
	p.killed(t, large)
	p.withRegistry(t, large)
	mixed := writeRelease(t, p.key, "1.0.0", map[string]int64{
		"linux_amd64": 500 * mb, "linux_arm64": 64 * mb, "darwin_amd64": 64 * mb, "darwin_arm64": 64 * mb,
		"windows_amd64": 64 * mb,
	})
	toOperator, toUpload := make([]float64, runs), make([]float64, runs)
	for run := range runs {
		t.Logf("run %d, a zip of 500 MB and four of 64", run+1)
		ways := []func(*testing.T, string) float64{p.withCredentials, p.withRegistry, p.uploadOnly}
		took := make([]float64, len(ways))
		for i := range ways {
			at := (i + run) % len(ways) // they take turns at being first
			took[at] = ways[at](t, again(t, p.key, mixed, fmt.Sprintf("1.%d.%d", run+1, at)))
		}
		toOperator[run], toUpload[run] = took[1]/took[0], took[1]/took[2]
	}
	// A publisher with AWS credentials unpacks the files, which takes longer on
	// some processors.
	for beside, ratios := range map[string][]float64{
		"publishing with AWS credentials": toOperator, "nothing but uploading": toUpload,
	} {
		slices.Sort(ratios)
		ratio := ratios[runs/2]
		t.Logf("uploading through the registry takes %.2f times as long as %s (median of %.2f)", ratio, beside, ratios)
		if ratio > bound {
			t.Errorf("uploading through the registry takes %.2f times as long as %s, more than %.2f", ratio, beside, bound)
		}
	}
}

// stocked starts a table with long listings. It returns the environment of
// functions that read it, and the token of a reader. Reads call no S3.
func stocked(b *testing.B) (env map[string]string, token string) {
	b.Helper()
	const name = "larder"
	dynamo, err := dynamodbtest.Start(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(dynamo.Close)
	table := dynamodb.New(awstest.Config(dynamo.URL), name)
	d := deployed{catalog: catalog.New(table)}
	public, err := signing.ParseKey(d.signer(b).Public, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	f := stock.Filler{Table: table}
	for _, n := range []int{1, 100, 1000, 5000} {
		f.Module(b, registry.Module{Namespace: "acme", Name: fmt.Sprintf("of-%d", n), System: "aws"}, n, 1)
	}
	note := registry.Provider{Namespace: "acme", Type: "note"}
	f.Provider(b, note, public.ID, 500, 1, 11)
	f.Mirrored(b, registry.MirrorAddress{Hostname: "registry.example.com", Namespace: note.Namespace, Name: note.Type}, 500, 14)
	far := registry.MirrorAddress{Hostname: "registry.example.com", Namespace: "acme", Name: "vpc", System: "aws"}
	f.MirroredModule(b, far, 100)
	f.Flush(b)
	token = addToken(b, d.catalog, "read:**")
	env = settings.Settings{Table: name, Bucket: "none", PresignLifetime: time.Hour, PathStyle: true}.Environment()
	env["AWS_ENDPOINT_URL_DYNAMODB"], env["AWS_ENDPOINT_URL_S3"] = dynamo.URL, "http://127.0.0.1:1"
	return env, token
}

// readKinds are the measured requests. The first one of a function is also its
// first request in [BenchmarkStart].
var readKinds = []struct{ name, function, path string }{
	{"discovery", "discovery", "/.well-known/terraform.json"},
	{"versions of a module, 100", "modules", "/v1/modules/acme/of-100/aws/versions"},
	{"versions of a module, 1", "modules", "/v1/modules/acme/of-1/aws/versions"},
	{"versions of a module, 1,000", "modules", "/v1/modules/acme/of-1000/aws/versions"},
	{"versions of a module, 5,000", "modules", "/v1/modules/acme/of-5000/aws/versions"},
	{"download of a module", "modules", "/v1/modules/acme/of-100/aws/1.9.9/download"},
	{"versions of a provider, 500 for 11 platforms", "providers", "/v1/providers/acme/note/versions"},
	{"download of a provider with 11 platforms", "providers", "/v1/providers/acme/note/5.9.9/download/linux/amd64"},
	{"index of a mirrored provider, 500 versions", "mirror", "/v1/mirror/registry.example.com/acme/note/index.json"},
	{"version of a mirrored provider with 14 platforms", "mirror", "/v1/mirror/registry.example.com/acme/note/5.9.9.json"},
	{"versions of another registry, 500 for 14 platforms", "mirror", "/v1/providers-of/registry.example.com/acme/note/versions"},
	{
		"download of another registry with 14 platforms", "mirror",
		"/v1/providers-of/registry.example.com/acme/note/5.9.9/download/linux/amd64",
	},
	{"versions of a mirrored module, 100", "mirror", "/v1/modules-of/registry.example.com/acme/vpc/aws/versions"},
	{"download of a mirrored module", "mirror", "/v1/modules-of/registry.example.com/acme/vpc/aws/1.9.9/download"},
	{"description of a provider", "metadata", "/v1/providers/acme/note"},
	{"home page", "web", "/"},
}

// eventOf returns the event of a client's request.
func eventOf(b *testing.B, path, token string) events.APIGatewayV2HTTPRequest {
	b.Helper()
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept-Encoding", "gzip")
	e, err := lambda.Event(r, path)
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// answers sends an event to a function, which must answer it.
func answers(b *testing.B, f *lambda.Function, event any) {
	b.Helper()
	payload, err := f.Invoke(b.Context(), event)
	if err != nil || bytes.Contains(payload, []byte(`"errors"`)) {
		b.Fatalf("%s: %v", payload, err)
	}
}

func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}

// BenchmarkStart starts each function in turns with one that does nothing. It
// reports the time until a process requests its first event, and until its first
// response, beside those of the other.
func BenchmarkStart(b *testing.B) {
	// The bounds of the first time. The templates of web call methods by name.
	most := map[string]float64{"discovery": 1.3, "web": 2}
	dist, err := built()
	if err != nil {
		b.Fatal(err)
	}
	bare := filepath.Join(b.TempDir(), "bootstrap")
	if err := lambda.BuildBare(b.Context(), lambda.Architecture(), bare); err != nil {
		b.Fatal(err)
	}
	env, token := stocked(b)
	seen := make(map[string]bool)
	for _, kind := range readKinds {
		if seen[kind.function] {
			continue
		}
		seen[kind.function] = true
		b.Run(kind.function, func(b *testing.B) {
			event := eventOf(b, kind.path, token)
			var polled, answered [2][]float64 // milliseconds
			var peak int64
			for b.Loop() {
				for i, binary := range []string{bare, filepath.Join(dist, kind.function, "bootstrap")} {
					f, err := lambda.StartFunction(b.Context(), kind.function, binary, env, lambda.FunctionTimeout)
					if err != nil {
						b.Fatal(err)
					}
					answers(b, f, event)
					answered[i] = append(answered[i], time.Since(f.Begun()).Seconds()*1000)
					polled[i] = append(polled[i], f.Polled().Sub(f.Begun()).Seconds()*1000)
					if peak, _, err = f.Usage(); err != nil {
						b.Fatal(err)
					}
					f.Close()
				}
			}
			ratio, bound := median(polled[1])/median(polled[0]), cmp.Or(most[kind.function], 3)
			b.ReportMetric(median(polled[1]), "ms/poll")
			b.ReportMetric(ratio, "poll/bare")
			b.ReportMetric(median(answered[1]), "ms/response")
			b.ReportMetric(median(answered[1])/median(answered[0]), "response/bare")
			b.ReportMetric(float64(peak>>10)/1024, "MiB")
			if b.N >= 10 && ratio > bound {
				b.Errorf("%s polls after %.2f times as long as a bare function, more than %.2f", kind.function, ratio, bound)
			}
		})
	}
}

// processorTime returns the processor time of a function's process in
// microseconds, and its peak memory in MiB.
func processorTime(b *testing.B, f *lambda.Function) (time, memory float64) {
	b.Helper()
	peak, used, err := f.Usage()
	if err != nil {
		b.Fatal(err)
	}
	return float64(used.Microseconds()), float64(peak>>10) / 1024
}

// BenchmarkRequest reports the processor time of a function's process for a
// request, and its peak memory.
func BenchmarkRequest(b *testing.B) {
	env, token := stocked(b)
	for _, kind := range readKinds {
		b.Run(kind.name, func(b *testing.B) {
			f, event := start(b, kind.function, env), eventOf(b, kind.path, token)
			answers(b, f, event)
			before, _ := processorTime(b, f)
			for b.Loop() {
				answers(b, f, event)
			}
			after, memory := processorTime(b, f)
			b.ReportMetric((after-before)/float64(b.N), "cpu-µs/op")
			b.ReportMetric(memory, "MiB")
		})
	}
}

// BenchmarkGrowth compares the processor time of listings of 5,000 versions with
// that of 100. They take turns.
func BenchmarkGrowth(b *testing.B) {
	const most, each = 5, 50
	env, token := stocked(b)
	f := start(b, "modules", env)
	var least [2]float64
	for b.Loop() {
		for i, versions := range []string{"100", "5000"} {
			event := eventOf(b, "/v1/modules/acme/of-"+versions+"/aws/versions", token)
			before, _ := processorTime(b, f)
			for range each {
				answers(b, f, event)
			}
			after, _ := processorTime(b, f)
			if took := after - before; least[i] == 0 || took < least[i] {
				least[i] = took
			}
		}
	}
	ratio := least[1] / least[0]
	b.ReportMetric(ratio, "times")
	if b.N >= 10 && ratio > most {
		b.Errorf("5,000 versions take %.2f times the processor time of 100, more than %d", ratio, most)
	}
}
