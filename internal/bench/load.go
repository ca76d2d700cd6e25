package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

const (
	// loadedModules is the number of modules that clients use and that get new
	// versions. There is also one provider.
	loadedModules = 5
	// eachPublish is the interval between published versions. One in
	// providerEvery is a version of the provider.
	eachPublish   = 100 * time.Millisecond
	providerEvery = 10
	// archiveSize is the size of the modules' archives and of the provider's
	// zips, in bytes. They do not compress.
	archiveSize = 64 << 10
	// grown is the bound on the growth of the server's memory and open files
	// when clients send as many requests as they can.
	grown = 1.2
	// timeout is how long a client waits for a response.
	timeout = 10 * time.Second
)

func load(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	larder := filepath.Join(dir, "larder")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", larder,
		"./scripts/larder").CombinedOutput(); err != nil {
		return result{}, fmt.Errorf("cannot build larder: %w\n%s", err, out)
	}
	fast, fastErr := measureLoad(ctx, larder, filepath.Join(dir, "fast"), n)
	hour, hourErr := measureHour(ctx, larder, filepath.Join(dir, "hour"), n)
	return result{tables: append(fast.tables, hour.tables...), lines: append(fast.lines, hour.lines...)},
		errors.Join(fastErr, hourErr)
}

// measureLoad has clients send the requests of an init as often as they can. The
// server uses its own certificate authority.
func measureLoad(ctx context.Context, larder, dir string, n amounts) (result, error) {
	r, err := startLoad(ctx, larder, dir, true, n)
	if err != nil {
		return result{}, err
	}
	defer r.close()
	err = r.run(ctx, n.load, eachPublish, func(ctx context.Context, c *loadClient) {
		for ctx.Err() == nil {
			// A started init is completed, so that the end of the time causes no
			// faults.
			c.init(context.WithoutCancel(ctx))
		}
	})
	if err != nil {
		return result{}, err
	}
	found := r.summarize(fmt.Sprintf("%d clients for %s", n.clients, n.load), n.load, grown, grown)
	return found, r.renewal.check()
}

// loadRun serves a folder with the command line in its own process, and
// publishes to it from this one while clients use it.
type loadRun struct {
	server    *loaded
	publisher *loadPublisher
	renewal   *renewal
	clients   []*loadClient
	// memory and files are regular samples of the server's process.
	memory, files []float64
}

// startLoad starts `larder serve` in a new folder, and publishes a version of
// each address. The server uses its own authority, or a host with a certificate,
// for which clients need a token.
func startLoad(ctx context.Context, larder, dir string, own bool, n amounts) (_ *loadRun, err error) {
	r := new(loadRun)
	var args []string
	if r.renewal, args, err = prepareRenewal(dir, own, n.reload); err != nil {
		return nil, err
	}
	if r.server, err = serve(ctx, larder, dir, args...); err != nil {
		return nil, err
	}
	r.renewal.observe(r.server)
	if r.publisher, err = newLoadPublisher(ctx, dir); err != nil {
		r.server.close()
		return nil, err
	}
	if err := r.fill(ctx, own); err != nil {
		r.close()
		return nil, err
	}
	for range n.clients {
		r.clients = append(r.clients, r.client())
	}
	return r, nil
}

func (r *loadRun) fill(ctx context.Context, own bool) (err error) {
	if !own {
		r.server.token, err = newCredential(ctx, r.publisher.data.Catalog, "load", "read:**")
		if err != nil {
			return err
		}
	}
	for i := range loadedModules + 1 {
		if err := r.publisher.publish(ctx, i); err != nil {
			return err
		}
	}
	return r.publisher.module(ctx, heldModule, version(1), heldSize)
}

func (r *loadRun) close() {
	_ = r.publisher.data.Close() // it is not used again
	r.server.close()
}

func (r *loadRun) client() *loadClient {
	return &loadClient{server: r.server, ledger: r.publisher.ledger, took: make(map[string]times)}
}

// run has each client do its work until the time has passed. Meanwhile it
// publishes a version in each interval, and renews the certificate once. At the
// end it uses each version.
func (r *loadRun) run(
	ctx context.Context, lasts, interval time.Duration, work func(context.Context, *loadClient),
) error {
	running, stop := context.WithTimeout(ctx, lasts)
	defer stop()
	var all sync.WaitGroup
	for _, c := range r.clients {
		all.Go(func() { work(running, c) })
	}
	var failed error
	all.Go(func() { failed = r.publisher.run(running, interval) })
	all.Go(func() { r.sample(running, min(time.Second, lasts/10)) })
	last := r.client()
	all.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(lasts / 2):
			last.acrossRenewal(ctx, r.renewal)
		}
	})
	all.Wait()
	if err := errors.Join(ctx.Err(), failed); err != nil {
		return err
	}
	last.everything(ctx)
	last.took, last.inits = nil, 0
	r.clients = append(r.clients, last)
	return nil
}

// sample measures the server's process at each interval until ctx is done.
func (r *loadRun) sample(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if m, f, err := r.server.usage(); err == nil {
				r.memory, r.files = append(r.memory, m), append(r.files, f)
			}
		}
	}
}

// faults returns the number of faults of each kind, and describes some of them.
func (r *loadRun) faults() (table, []string) {
	var problems []error
	for _, c := range r.clients {
		problems = append(problems, c.problems...)
	}
	logged, err := r.server.errors()
	if err != nil {
		logged = []string{err.Error()}
	}
	t := table{columns: []column{{"count", ""}}, rows: []row{
		{"requests and downloads", []*figure{atMost(count(problems, errRequest), 0)}},
		{"versions missing in a listing", []*figure{atMost(count(problems, errMissing), 0)}},
		{"incomplete versions", []*figure{atMost(count(problems, errHalf), 0)}},
		{"errors in the server's log", []*figure{atMost(float64(len(logged)), 0)}},
	}}
	var lines []string
	for i, problem := range problems {
		if i == 10 {
			lines = append(lines, fmt.Sprintf("and %d more", len(problems)-i))
			break
		}
		lines = append(lines, problem.Error())
	}
	return t, append(lines, logged[:min(len(logged), 10)]...)
}

func count(problems []error, kind error) float64 {
	n := 0.0
	for _, err := range problems {
		if errors.Is(err, kind) {
			n++
		}
	}
	return n
}

// The kinds of faults that a client can see.
var (
	errRequest = errors.New("the request failed")
	errMissing = errors.New("a version is missing")
	errHalf    = errors.New("a version is incomplete")
)

// summarize returns the number of requests, their latencies, the faults and the
// growth of the server's process with its bounds. The title is that of the first
// table, and begins those of the others.
func (r *loadRun) summarize(title string, lasted time.Duration, maxMemory, maxFiles float64) result {
	took := make(map[string]times)
	var every times
	inits := 0
	for _, c := range r.clients {
		inits += c.inits
		for kind, t := range c.took {
			took[kind] = append(took[kind], t...)
			if kind != startOfInit {
				every = append(every, t...)
			}
		}
	}
	took["all of them"] = every
	t := table{title: title,
		columns: []column{{"per second", ""}, {"median", "ms"}, {"99 of 100 within", "ms"}}}
	for _, kind := range []string{startOfInit, "discovery", "module versions", "module download", "archive",
		"provider versions", "provider download", "SHA256SUMS", "zip", "all of them"} {
		if all := took[kind]; len(all) > 0 {
			t.rows = append(t.rows, row{kind,
				[]*figure{is(float64(len(all)) / lasted.Seconds()), is(milliseconds(all.median())),
					is(milliseconds(all.percentile(99)))}})
		}
	}
	counts := table{title: title + ": work done", columns: []column{{"count", ""}}, rows: []row{
		{"requests", []*figure{is(float64(len(every)))}},
		{"inits", []*figure{is(float64(inits))}},
		{"versions of modules published", []*figure{is(float64(r.publisher.published[0]))}},
		{"versions of the provider published", []*figure{is(float64(r.publisher.published[1]))}},
	}}
	faults, lines := r.faults()
	faults.title = title + ": faults"
	return result{lines: lines, tables: []table{t, counts, faults, r.renewal.table(title + ": certificate"),
		overTime(title+": the server's process", r.memory, r.files, maxMemory, maxFiles)}}
}

// overTime compares samples of a process over time. The bounds are those on the
// growth from the second third to the last, because the first one includes the
// start. Open files include connections, whose number depends on how busy the
// machine is. Only their lowest number shows that some are never closed. The
// table has no rows on systems without these samples.
func overTime(title string, memory, files []float64, maxMemory, maxFiles float64) table {
	t := table{title: title, columns: []column{{"first tenth", ""}, {"second third", ""}, {"last third", ""},
		{"last tenth", ""}, {"times", ""}}}
	for _, sampled := range []struct {
		name   string
		values []float64
		of     func([]float64) float64
		bound  float64
	}{
		{"memory, median, MiB", memory, middle, maxMemory},
		{"open files, least", files, slices.Min[[]float64], maxFiles},
	} {
		n := len(sampled.values)
		if n < 3 {
			continue
		}
		between := func(from, to int) float64 { return sampled.of(sampled.values[from:to]) }
		tenth := (n + 9) / 10
		before, after := between(n/3, n/3*2), between(n/3*2, n)
		t.rows = append(t.rows, row{sampled.name, []*figure{is(between(0, tenth)), is(before), is(after),
			is(between(n-tenth, n)), atMost(after/before, sampled.bound)}})
	}
	return t
}

func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// loaded is a `larder serve` in its own process.
type loaded struct {
	url   string
	roots *x509.CertPool
	// address is where the server listens.
	address string
	// token is the credential of clients, or empty.
	token string
	// connected is called after each handshake of a client, unless it is nil.
	connected func(tls.ConnectionState) error
	cmd       *exec.Cmd
	log       string
	ended     chan struct{} // closed when the process has exited
}

// client returns a client without open connections.
func (s *loaded) client() *http.Client {
	return &http.Client{Timeout: timeout,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12, VerifyConnection: s.connected},
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, s.address)
			},
			ForceAttemptHTTP2: true,
			// CloseIdleConnections does not close a connection whose last response
			// has just been read.
			IdleConnTimeout: time.Second,
		}}
}

// serve starts `larder serve` with further arguments. It appends to an existing
// log. With --cert, the caller sets the roots of clients.
func serve(ctx context.Context, larder, dir string, args ...string) (*loaded, error) {
	s := &loaded{log: filepath.Join(dir, "log"), ended: make(chan struct{})}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args = append([]string{"serve", "--store", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--json"},
		args...)
	s.cmd = exec.CommandContext(ctx, larder, args...)
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	var started struct {
		URL     string `json:"url"`
		Address string `json:"address"`
		CAFile  string `json:"ca_file"`
	}
	err = json.NewDecoder(out).Decode(&started)
	go func() {
		_ = s.cmd.Wait() // its log has any error
		close(s.ended)
	}()
	if err != nil {
		s.close()
		return nil, fmt.Errorf("cannot start larder serve: %w", err)
	}
	s.url, s.address, s.roots = started.URL, started.Address, x509.NewCertPool()
	if started.CAFile == "" {
		return s, nil
	}
	ca, err := os.ReadFile(started.CAFile)
	if err != nil {
		s.close()
		return nil, err
	}
	s.roots.AppendCertsFromPEM(ca)
	return s, nil
}

func (s *loaded) close() {
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	<-s.ended
}

// usage returns the server's memory in MiB and its number of open files.
func (s *loaded) usage() (memory, files float64, err error) {
	proc := fmt.Sprintf("/proc/%d", s.cmd.Process.Pid)
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return 0, 0, err
	}
	_, found, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscanf(found, "%f kB", &memory); err != nil {
		return 0, 0, err
	}
	open, err := os.ReadDir(proc + "/fd")
	return memory / 1024, float64(len(open)), err
}

// errors returns the log lines with the level ERROR.
func (s *loaded) errors() ([]string, error) {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte("level=ERROR")) {
			found = append(found, strings.TrimSpace(string(line)))
		}
	}
	return found, nil
}

// ledger has the versions that exist: those whose publish has returned, and
// those that a client has received.
type ledger struct {
	mu       sync.Mutex
	versions map[string][]string
	has      map[string]bool // ADDRESS VERSION
}

// of returns the versions of an address so far.
func (l *ledger) of(address string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.versions[address] // append does not change these elements
}

func (l *ledger) add(address string, versions ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range versions {
		if !l.has[address+" "+v] {
			l.has[address+" "+v] = true
			l.versions[address] = append(l.versions[address], v)
		}
	}
}

// loadPublisher publishes one version after another.
type loadPublisher struct {
	dir       string
	data      *local.Data
	publisher publish.Publisher
	key       keys.SigningKey
	ledger    *ledger
	published [2]int // of modules, of the provider
}

var (
	loadedProvider = registry.Provider{Namespace: "acme", Type: "note"}
	loadedPlatform = registry.Platform{OS: "linux", Arch: "amd64"}
)

func loadedModule(i int) registry.Module {
	return registry.Module{Namespace: "acme", Name: fmt.Sprintf("module-%d", i), System: "aws"}
}

func newLoadPublisher(ctx context.Context, dir string) (*loadPublisher, error) {
	data, _, err := local.Create(ctx, filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	p := &loadPublisher{dir: dir, data: data,
		ledger: &ledger{versions: make(map[string][]string), has: make(map[string]bool)}}
	p.publisher = publish.Publisher{Catalog: data.Catalog, Objects: data.Objects, By: operator}
	if p.key, _, err = addKey(ctx, data.Catalog); err != nil {
		return nil, errors.Join(err, data.Close())
	}
	return p, nil
}

// run publishes a version in each interval until ctx is done. It completes the
// last publish.
func (p *loadPublisher) run(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		which := i % loadedModules
		if i%providerEvery == 0 {
			which = loadedModules
		}
		if err := p.publish(context.WithoutCancel(ctx), which); err != nil {
			return err
		}
	}
}

// publish publishes the next version of a module, or of the provider if which
// is loadedModules.
func (p *loadPublisher) publish(ctx context.Context, which int) error {
	if which == loadedModules {
		return p.provider(ctx)
	}
	m := loadedModule(which)
	return p.module(ctx, m, version(len(p.ledger.of(m.Path()))+1), archiveSize)
}

func (p *loadPublisher) provider(ctx context.Context) error {
	dir, err := os.MkdirTemp(p.dir, "publish")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	v := version(p.published[1] + 1)
	of := []registry.Platform{loadedPlatform}
	if err := writeRelease(dir, p.key, loadedProvider.Type, v, of, archiveSize); err != nil {
		return err
	}
	if _, err := p.publisher.Provider(ctx, releases.Provider{Dir: dir, Address: loadedProvider}); err != nil {
		return err
	}
	p.published[1]++
	p.ledger.add(loadedProvider.Path(), v.String())
	return nil
}

// module publishes a version whose archive has at least size bytes.
func (p *loadPublisher) module(ctx context.Context, m registry.Module, v registry.Version, size int) error {
	dir, err := os.MkdirTemp(p.dir, "publish")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, content := range map[string][]byte{"main.tf": []byte("output \"it\" { value = 1 }\n"),
		"data.bin": random(size)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	if _, err := p.publisher.Module(ctx, releases.Module{Dir: dir, Address: m, Version: v}); err != nil {
		return err
	}
	p.published[0]++
	p.ledger.add(m.Path(), v.String())
	return nil
}

func random(size int) []byte {
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	out := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(out) // it never fails
	return out
}

// loadClient sends the requests of an init repeatedly, each time over new
// connections.
type loadClient struct {
	server *loaded
	ledger *ledger

	http     *http.Client
	inits    int
	took     map[string]times
	problems []error
}

// init uses a module and the provider.
func (c *loadClient) init(ctx context.Context) {
	c.http = c.server.client()
	defer c.http.CloseIdleConnections()
	m := loadedModule(rand.IntN(loadedModules))
	for _, step := range []func() error{
		func() error { return c.module(ctx, m, "") },
		func() error { return c.provider(ctx, "") },
	} {
		if err := step(); err != nil {
			c.problems = append(c.problems, err)
			return
		}
	}
	c.inits++
}

// everything uses each version in the ledger.
func (c *loadClient) everything(ctx context.Context) {
	c.http = c.server.client()
	defer c.http.CloseIdleConnections()
	use := func(path string, with func(version string) error) {
		for _, v := range c.ledger.of(path) {
			if err := with(v); err != nil {
				c.problems = append(c.problems, err)
			}
		}
	}
	for i := range loadedModules {
		use(loadedModule(i).Path(), func(v string) error { return c.module(ctx, loadedModule(i), v) })
	}
	use(loadedProvider.Path(), func(v string) error { return c.provider(ctx, v) })
}

// services returns the URLs of the registry's services.
func (c *loadClient) services(ctx context.Context) (modules, providers string, err error) {
	var found struct {
		Modules   string `json:"modules.v1"`
		Providers string `json:"providers.v1"`
	}
	_, err = c.getJSON(ctx, "discovery", c.server.url+"/.well-known/terraform.json", &found)
	return c.server.url + found.Modules, c.server.url + found.Providers, err
}

type listedVersions struct {
	Versions []struct {
		Version string `json:"version"`
	} `json:"versions"`
}

// choose checks that a listing has the versions that existed before the
// request. It returns the version want, or the newest one if want is empty.
func (c *loadClient) choose(path, want string, before []string, l listedVersions) (string, error) {
	listed := make(map[string]bool, len(l.Versions))
	all := make([]string, len(l.Versions))
	for i, v := range l.Versions {
		listed[v.Version], all[i] = true, v.Version
	}
	for _, v := range before {
		if !listed[v] {
			return "", fmt.Errorf("%w: %s %s is not in a listing of %d versions", errMissing, path, v, len(all))
		}
	}
	if len(all) == 0 {
		return "", fmt.Errorf("%w: %s has no versions", errMissing, path)
	}
	c.ledger.add(path, all...)
	if want == "" {
		want = all[0] // the registry lists the newest first
	}
	return want, nil
}

func (c *loadClient) module(ctx context.Context, m registry.Module, want string) error {
	from, sum, err := c.locate(ctx, m, want)
	if err != nil {
		return err
	}
	return c.download(ctx, "archive", from, sum)
}

// locate returns the URL of a module's archive and its SHA-256 digest. It
// chooses a version like choose.
func (c *loadClient) locate(ctx context.Context, m registry.Module, want string) (from, sum string, err error) {
	modules, _, err := c.services(ctx)
	if err != nil {
		return "", "", err
	}
	before := c.ledger.of(m.Path())
	var listing struct{ Modules []listedVersions }
	if _, err := c.getJSON(ctx, "module versions", modules+m.String()+"/versions", &listing); err != nil {
		return "", "", err
	}
	if len(listing.Modules) != 1 {
		return "", "", fmt.Errorf("%w: %s: the listing has %d modules", errHalf, m, len(listing.Modules))
	}
	v, err := c.choose(m.Path(), want, before, listing.Modules[0])
	if err != nil {
		return "", "", err
	}
	header, err := c.getJSON(ctx, "module download", modules+m.String()+"/"+v+"/download", nil)
	if err != nil {
		return "", "", err
	}
	location, err := url.Parse(header.Get("X-Terraform-Get"))
	if err != nil || location.Host == "" {
		return "", "", fmt.Errorf("%w: %s %s has no location: %w", errHalf, m, v, err)
	}
	query := location.Query()
	sum, found := strings.CutPrefix(query.Get("checksum"), "sha256:")
	if !found {
		return "", "", fmt.Errorf("%w: %s %s has no checksum", errHalf, m, v)
	}
	query.Del("checksum")
	query.Del("archive")
	location.RawQuery = query.Encode()
	return location.String(), sum, nil
}

func (c *loadClient) provider(ctx context.Context, want string) error {
	_, providers, err := c.services(ctx)
	if err != nil {
		return err
	}
	p := loadedProvider
	before := c.ledger.of(p.Path())
	var listing listedVersions
	if _, err := c.getJSON(ctx, "provider versions", providers+p.String()+"/versions", &listing); err != nil {
		return err
	}
	v, err := c.choose(p.Path(), want, before, listing)
	if err != nil {
		return err
	}
	var found struct {
		Filename string `json:"filename"`
		URL      string `json:"download_url"`
		Sum      string `json:"shasum"`
		SumsURL  string `json:"shasums_url"`
	}
	if _, err := c.getJSON(ctx, "provider download",
		providers+p.String()+"/"+v+"/download/"+loadedPlatform.OS+"/"+loadedPlatform.Arch, &found); err != nil {
		return err
	}
	sums, _, err := c.get(ctx, "SHA256SUMS", found.SumsURL, "")
	if err != nil {
		return err
	}
	if !strings.Contains(string(sums), found.Sum+"  "+found.Filename+"\n") {
		return fmt.Errorf("%w: %s %s: SHA256SUMS lacks %s", errHalf, p, v, found.Filename)
	}
	return c.download(ctx, "zip", found.URL, found.Sum)
}

// download downloads a file and verifies its SHA-256 digest.
func (c *loadClient) download(ctx context.Context, kind, from, sum string) error {
	body, _, err := c.get(ctx, kind, from, "")
	if err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(body)); got != sum {
		return fmt.Errorf("%w: %s of %d bytes has sha256:%s, not sha256:%s", errHalf, kind, len(body), got, sum)
	}
	return nil
}

func (c *loadClient) getJSON(ctx context.Context, kind, from string, into any) (http.Header, error) {
	body, header, err := c.get(ctx, kind, from, c.server.token)
	if err == nil && into != nil {
		if err = json.Unmarshal(body, into); err != nil {
			err = fmt.Errorf("%w: %s: %w", errHalf, kind, err)
		}
	}
	return header, err
}

// get sends one request and records its latency. The token may be empty.
func (c *loadClient) get(ctx context.Context, kind, from, token string) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", errRequest, kind, err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	begun := time.Now()
	response, err := c.http.Do(r)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", errRequest, kind, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	c.took[kind] = append(c.took[kind], time.Since(begun))
	if err != nil || response.StatusCode >= http.StatusMultipleChoices {
		return nil, nil, errors.Join(fmt.Errorf("%w: %s: %s: %.200s", errRequest, kind, response.Status, body), err)
	}
	return body, response.Header, nil
}
