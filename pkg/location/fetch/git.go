package fetch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/git"
	"github.com/larder-registry/larder/pkg/location"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
)

// gitTimeout bounds the time for one repository.
const gitTimeout = 10 * time.Minute

// clone fetches a commit of a repository, and checks it out into dir. It does not
// fetch submodules. Without a ref, the commit is that of the default branch.
func (f *Fetcher) clone(ctx context.Context, at location.Location, dir string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, gitTimeout,
		fmt.Errorf("it takes more than %s: %w", gitTimeout, registry.ErrUnavailable))
	defer cancel()
	environ, settings, p, err := f.settings(ctx, at)
	if err != nil {
		return err
	}
	defer p.close()
	repository, err := os.MkdirTemp("", "larder-git-*")
	if err != nil {
		return registry.DiskFull(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(repository)) }()
	_, end := progress.Or(f.Progress).Transfer("fetching "+shown(at.URL), 0)
	defer end()
	g := gitRun{ctx: ctx, dir: repository, environ: environ, settings: settings}
	if g.repository, err = git.Init(ctx, repository, nil); err != nil {
		return err
	}
	commit, err := g.fetch(at)
	if err != nil && p.refused() != nil {
		err = p.refused()
	}
	if err == nil {
		err = g.check(commit)
	}
	if err == nil {
		_, err = g.repository.RunIn(ctx, dir, filepath.Join(repository, "index"), "checkout", "--quiet", "--force", "--detach", commit)
	}
	if err == nil {
		err = g.repository.CheckFolder(ctx, commit, dir, at.Folder)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot fetch %s: %w", shown(at.URL), err)
	}
	return nil
}

// settings returns what git needs to connect. It connects only to addresses that
// the client permits.
//
// The caller closes the proxy, which can be nil.
func (f *Fetcher) settings(ctx context.Context, at location.Location) (
	environ []string, settings []git.Setting, p *proxy, err error,
) {
	settings = []git.Setting{{Key: "fetch.recurseSubmodules", Value: "false"}, {Key: "http.followRedirects", Value: "initial"}}
	if at.URL.Scheme == "ssh" {
		return nil, settings, nil, f.Client.CheckHost(ctx, at.URL.Hostname())
	}
	proxied, err := f.Client.Proxied(at.URL)
	if err != nil {
		return nil, nil, nil, err
	}
	bypass := []string{"no_proxy"} // redirects use the proxy too
	if !proxied {
		if p, err = f.proxy(ctx); err != nil {
			return nil, nil, nil, err
		}
		settings = append(settings, git.Setting{Key: "http.proxy", Value: "http://" + p.address})
		bypass = append(bypass, "https_proxy", "http_proxy", "all_proxy")
	}
	for _, name := range bypass {
		environ = append(environ, name+"=", strings.ToUpper(name)+"=")
	}
	return environ, settings, p, nil
}

// gitRun fetches into a repository of its own.
type gitRun struct {
	ctx        context.Context //nolint:containedctx // of one call
	dir        string
	repository *git.Repository
	environ    []string
	settings   []git.Setting
}

// run runs git with a connection. It returns the cause of its context's end, if it
// has ended.
func (g gitRun) run(args ...string) ([]byte, error) {
	out, err := g.repository.RunOnline(g.ctx, g.environ, g.settings, args...)
	if err != nil && g.ctx.Err() != nil {
		err = context.Cause(g.ctx)
	}
	return out, err
}

// fetch fetches the commit of a location, and returns its hash.
func (g gitRun) fetch(at location.Location) (commit string, err error) {
	if at.URL.Scheme == "ssh" {
		// These two, and the setting that the variable would override, can contain the
		// key.
		_, missing := g.run("config", "--get", "core.sshCommand")
		if missing != nil && os.Getenv("GIT_SSH_COMMAND") == "" && os.Getenv("GIT_SSH") == "" {
			g.environ = append(g.environ, "GIT_SSH_COMMAND=ssh -o BatchMode=yes")
		}
	}
	ctx, cancel := context.WithCancelCause(g.ctx)
	defer cancel(nil)
	var watching sync.WaitGroup
	watching.Go(func() { g.watch(ctx, cancel) })
	defer watching.Wait()
	defer cancel(nil)
	watched := g
	watched.ctx = ctx
	url, ref := at.URL.String(), cmp.Or(at.Ref, "HEAD")
	_, err = watched.run("fetch", "--quiet", "--no-tags", "--depth=1", "--", url, ref)
	if err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "shallow") {
		// A repository in a folder of a web server cannot send less than its history.
		_, err = watched.run("fetch", "--quiet", "--no-tags", "--", url, ref)
	}
	switch {
	case err == nil:
		if commit, err = g.parse("FETCH_HEAD"); err != nil {
			return "", noCommit(ref)
		}
		return commit, nil
	case ctx.Err() != nil:
		return "", err
	case !isHash.MatchString(ref):
		if strings.Contains(err.Error(), "couldn't find remote ref") {
			err = noCommit(ref)
		}
		return "", err
	}
	// A server may not let clients fetch a commit by its hash, and a hash may be
	// abbreviated. So fetch everything.
	_, err = watched.run("fetch", "--quiet", "--", url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
	if err != nil {
		return "", err
	}
	if commit, err = g.parse(ref); err != nil {
		return "", noCommit(ref)
	}
	return commit, nil
}

// isHash matches the hash of a commit, which can be abbreviated.
var isHash = regexp.MustCompile(`^[0-9a-f]{4,64}$`)

func noCommit(ref string) error {
	return fmt.Errorf("%w location of the module: the repository has no branch, tag or commit %s", registry.ErrInvalid, ref)
}

// parse returns the hash of the commit with a name.
func (g gitRun) parse(name string) (string, error) {
	out, err := g.repository.Run(g.ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	return strings.TrimSpace(string(out)), err
}

// watch ends a fetch that stores more than maxBytes.
func (g gitRun) watch(ctx context.Context, stop context.CancelCauseFunc) {
	const interval = 200 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var size int64
		_ = filepath.WalkDir(filepath.Join(g.dir, "objects"), func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // git renames files meanwhile
			}
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				size += info.Size()
			}
			return nil
		})
		if size > maxBytes {
			stop(fmt.Errorf("%w repository: it has more than %d bytes", registry.ErrInvalid, maxBytes))
			return
		}
	}
}

// check checks the sizes of a commit before its files are checked out.
func (g gitRun) check(commit string) error {
	out, err := g.repository.Run(g.ctx, "ls-tree", "-r", "-l", "-z", "--full-tree", "--end-of-options", commit)
	if err != nil {
		return err
	}
	files, parts, size := 0, 0, int64(0)
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		about, name, found := strings.Cut(string(entry), "\t")
		if !found {
			continue
		}
		fields := strings.Fields(about) // mode, type, hash, size
		files++
		parts += 1 + strings.Count(name, "/")
		if files > maxFiles || parts > maxParts*maxFiles || len(fields) != 4 {
			return invalidTree("it has more than %d files or folders", maxFiles)
		}
		if fields[1] == "commit" {
			continue
		}
		n, err := strconv.ParseInt(fields[3], 10, 64)
		if size += n; err != nil || size > maxBytes {
			return invalidTree("its files have more than %d bytes", maxBytes)
		}
	}
	return nil
}

func invalidTree(format string, args ...any) error {
	return fmt.Errorf("%w commit: %s", registry.ErrInvalid, fmt.Sprintf(format, args...))
}

// proxy serves HTTP CONNECT on this machine. It connects only to addresses that
// the client permits, whatever git looks up or is redirected to.
type proxy struct {
	address string
	server  *http.Server
	client  *client.Client

	mu  sync.Mutex
	err error // the first error of a connection
}

// proxy starts a proxy. The caller closes it.
func (f *Fetcher) proxy(ctx context.Context) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{address: listener.Addr().String(), client: f.Client}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.server.Serve(listener) }() // it ends with close
	return p, nil
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only https", http.StatusForbidden)
		return
	}
	out, err := p.client.Dial(r.Context(), r.Host)
	if err != nil {
		p.mu.Lock()
		p.err = cmp.Or(p.err, err)
		p.mu.Unlock()
		http.Error(w, "refused", http.StatusForbidden)
		return
	}
	defer func() { _ = out.Close() }() // the tunnel has ended
	tunnel(w, out)
}

// refused returns why the proxy has not connected to an address, or nil.
func (p *proxy) refused() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *proxy) close() {
	if p != nil {
		_ = p.server.Close()
	}
}

// tunnel copies bytes in both directions until one side ends.
func tunnel(w http.ResponseWriter, out net.Conn) {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return
	}
	in, buffered, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer func() { _ = in.Close() }() // the tunnel has ended
	if _, err := io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		done <- struct{}{}
	}
	go pass(out, buffered.Reader)
	go pass(in, out)
	<-done
}
