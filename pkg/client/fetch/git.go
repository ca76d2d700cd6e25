package fetch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/client/git"
	"github.com/larder-registry/larder/pkg/client/location"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// gitTimeout bounds the time for one repository.
const gitTimeout = 10 * time.Minute

// The further bounds of a repository. Tests lower them.
var (
	// stepTimeout bounds the time in which a fetch must store stepBytes, which
	// includes the time in which both sides compress. It also bounds the time in
	// which git lists a commit. A few kilobytes can otherwise keep git busy for hours.
	stepTimeout = 5 * time.Minute
	// maxObjects bounds the objects of a fetch.
	maxObjects uint32 = 2_000_000
)

const stepBytes = 256 << 10

// Clone fetches a commit of a repository, and checks all of it out into an empty
// folder. It returns the commit. It does not fetch submodules and the files in Git
// LFS: dir has empty folders and pointers instead. Without a ref, the commit is that
// of the default branch.
//
// git uses the credentials of this machine only for hosts that f names. If a
// repository exceeds a limit, f does not fetch from it again.
func (f *Fetcher) Clone(ctx context.Context, at location.Location, dir string) (commit string, err error) {
	return f.clone(ctx, at, func(g gitRun, commit string) error { return g.checkout(commit, dir) })
}

// cloneComplete is Clone for a module that has everything in its folder.
func (f *Fetcher) cloneComplete(ctx context.Context, at location.Location, dir string) error {
	_, err := f.clone(ctx, at, func(g gitRun, commit string) error {
		if err := g.checkout(commit, dir); err != nil {
			return err
		}
		return g.checkComplete(commit, at.Folder, dir)
	})
	return err
}

// clone fetches a commit of a repository, and calls checkout with it.
func (f *Fetcher) clone(ctx context.Context, at location.Location, checkout func(gitRun, string) error) (
	commit string, err error,
) {
	f.mu.Lock()
	err = f.failed[at.URL.String()]
	f.mu.Unlock()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, gitTimeout,
		fmt.Errorf("%w: it takes more than %s: %w", errLimit, gitTimeout, registry.ErrUnavailable))
	defer cancel()
	host := at.URL.Hostname()
	if at.URL.Scheme == "ssh" && !f.names(host) {
		return "", fmt.Errorf("cannot fetch %s: %w", shown(at.URL), f.unnamed(host,
			"%w location of the module: ssh would use a key of this machine for %s, which you did not name",
			registry.ErrInvalid, host))
	}
	if at.URL.Scheme == "https" && !f.names(host) {
		anonymous := *at.URL
		anonymous.User, at.URL = nil, &anonymous // with a user, git would try to log in
	}
	connection, p, err := f.connection(ctx, at)
	if err != nil {
		return "", err
	}
	defer p.close()
	repository, err := temporary.Folder("larder-git-*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(repository)) }()
	_, end := progress.Or(f.Progress).Transfer("fetching "+shown(at.URL), 0)
	defer end()
	g := gitRun{ctx: ctx, dir: repository, connection: connection}
	if g.repository, err = git.Init(ctx, repository, nil); err != nil {
		return "", err
	}
	commit, err = g.fetch(at)
	switch refused := p.refused(); {
	case err != nil && refused != nil:
		err = refused
	case err != nil && !f.names(host) && needsLogin.MatchString(err.Error()):
		err = f.unnamed(host, "%w", err)
	}
	if err == nil {
		err = checkout(g, commit)
	}
	if err == nil {
		return commit, nil
	}
	err = fmt.Errorf("cannot fetch %s: %w", shown(at.URL), err)
	if errors.Is(err, errLimit) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.failed == nil {
			f.failed = make(map[string]error)
		}
		f.failed[at.URL.String()] = err
	}
	return "", err
}

// needsLogin matches the messages of git for a repository that may need a login.
var needsLogin = regexp.MustCompile(`Authentication failed|could not read Username|\b40[134]\b|not found`)

// errLimit means that a repository exceeds a limit.
var errLimit = errors.New("over a limit")

// unnamed returns an error with a hint about a host that f does not name.
func (f *Fetcher) unnamed(host, format string, args ...any) error {
	return registry.WithHint(fmt.Errorf(format, args...),
		"No credential was used for %s, because you did not name it. If you trust the module's registry to "+
			"lead to it, let git use your credentials there with `--allow-host %[1]s`.", host)
}

// connection returns how git connects. It uses only addresses that the client
// permits, and the credentials of the user only for hosts that f names.
//
// The caller closes the proxy, which can be nil.
func (f *Fetcher) connection(ctx context.Context, at location.Location) (c git.Connection, p *proxy, err error) {
	c.Lends = f.names(at.URL.Hostname())
	c.Settings = []git.Setting{
		{Key: "fetch.recurseSubmodules", Value: "false"}, {Key: "fetch.unpackLimit", Value: "1"}, // so that watch sees the pack
	}
	setting := func(key, value string) {
		// A setting for the URL overrides those of the user for a part of it.
		c.Settings = append(c.Settings, git.Setting{Key: "http." + key, Value: value},
			git.Setting{Key: "http." + at.URL.String() + "." + key, Value: value})
	}
	if at.URL.Scheme == "ssh" {
		return c, nil, f.Client.CheckHost(ctx, at.URL.Hostname())
	}
	proxied, err := f.Client.Proxied(at.URL)
	if err != nil {
		return c, nil, err
	}
	bypass := []string{"no_proxy"} // redirects use the proxy too
	if !proxied {
		if p, err = f.proxy(ctx, c.Lends); err != nil {
			return c, nil, err
		}
		setting("proxy", "http://"+p.address)
		bypass = append(bypass, "https_proxy", "http_proxy", "all_proxy")
	}
	follow := "initial"
	if proxied && c.Lends || !c.Lends && runtime.GOOS == "windows" {
		// Nothing sees whether git is redirected to another host. Windows would use the
		// person's login for a redirect to a URL with a user.
		follow = "false"
	}
	setting("followRedirects", follow)
	for _, name := range bypass {
		c.Environ = append(c.Environ, name+"=", strings.ToUpper(name)+"=")
	}
	return c, p, nil
}

// gitRun fetches into a repository of its own.
type gitRun struct {
	ctx        context.Context //nolint:containedctx // of one call
	dir        string
	repository *git.Repository
	connection git.Connection
}

// online runs git with a connection. It returns the cause of its context's end, if
// it has ended.
func (g gitRun) online(args ...string) error {
	_, err := g.repository.RunOnline(g.ctx, g.connection, args...)
	if err != nil && g.ctx.Err() != nil {
		err = context.Cause(g.ctx)
	}
	return err
}

func (g gitRun) step(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(g.ctx, stepTimeout,
		fmt.Errorf("%w: git takes more than %s to read it: %w", errLimit, stepTimeout, registry.ErrInvalid))
	defer cancel()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// checkout checks the files of a commit, and checks them out into dir.
func (g gitRun) checkout(commit, dir string) error {
	if err := g.step(func(ctx context.Context) error { return g.check(ctx, commit) }); err != nil {
		return err
	}
	_, err := g.repository.RunIn(g.ctx, dir, filepath.Join(g.dir, "index"), "checkout", "--quiet", "--force", "--detach", commit)
	if err != nil && g.ctx.Err() != nil {
		err = context.Cause(g.ctx)
	}
	return err
}

// checkComplete returns registry.ErrInvalid if a folder of a checked out commit lacks
// content.
func (g gitRun) checkComplete(commit, folder, dir string) error {
	lacks, err := g.repository.Incomplete(g.ctx, commit, dir, folder)
	if err != nil && g.ctx.Err() != nil {
		err = context.Cause(g.ctx)
	}
	for _, name := range slices.Sorted(maps.Keys(lacks)) {
		return invalidTree("%s %s", printable.Mark(path.Join(folder, name), 200), lacks[name])
	}
	return err
}

func (g gitRun) fetch(at location.Location) (commit string, err error) {
	if at.URL.Scheme == "ssh" {
		// These two, and the setting that the variable would override, can contain the
		// key.
		missing := g.online("config", "--get", "core.sshCommand")
		if missing != nil && os.Getenv("GIT_SSH_COMMAND") == "" && os.Getenv("GIT_SSH") == "" {
			g.connection.Environ = append(g.connection.Environ, "GIT_SSH_COMMAND=ssh -o BatchMode=yes")
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
	err = watched.online("fetch", "--quiet", "--no-tags", "--depth=1", "--", url, ref)
	if err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "shallow") {
		// A repository in a folder of a web server cannot send less than its history.
		err = watched.online("fetch", "--quiet", "--no-tags", "--", url, ref)
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
	err = watched.online("fetch", "--quiet", "--", url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
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

var errNoCommit = errors.New("the repository has no branch, tag or commit")

func noCommit(ref string) error {
	return fmt.Errorf("%w location of the module: %w %s", registry.ErrInvalid, errNoCommit, ref)
}

func (g gitRun) parse(name string) (commit string, err error) {
	err = g.step(func(ctx context.Context) error {
		out, err := g.repository.Run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
		commit = strings.TrimSpace(string(out))
		return err
	})
	return commit, err
}

// watch ends a fetch that stores more than maxBytes or maxObjects, or too little
// for stepTimeout.
func (g gitRun) watch(ctx context.Context, stop context.CancelCauseFunc) {
	const interval = 200 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	before, since := int64(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		size, objects := g.stored()
		if size >= before+stepBytes {
			before, since = size, time.Now()
		}
		var why string
		switch {
		case size > maxBytes:
			why = fmt.Sprintf("it has more than %d bytes", maxBytes)
		case objects > maxObjects:
			why = fmt.Sprintf("it has more than %d objects", maxObjects)
		case time.Since(since) > stepTimeout:
			why = fmt.Sprintf("git has stored less than %d bytes in %s", stepBytes, stepTimeout)
		default:
			continue
		}
		stop(fmt.Errorf("%w repository: %w: %s", registry.ErrInvalid, errLimit, why))
		return
	}
}

// stored returns the size of what a fetch has stored, and the number of objects
// that the headers of its packs announce.
//
// Source: https://git-scm.com/docs/pack-format.
func (g gitRun) stored() (size int64, objects uint32) {
	root, err := os.OpenRoot(filepath.Join(g.dir, "objects"))
	if err != nil {
		return 0, 0
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // git renames files meanwhile
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // as above
		}
		size += info.Size()
		if f, err := root.Open(name); err == nil {
			var header [12]byte
			if _, err := io.ReadFull(f, header[:]); err == nil && string(header[:4]) == "PACK" {
				objects = max(objects, binary.BigEndian.Uint32(header[8:]))
			}
			_ = f.Close() // it was only read
		}
		return nil
	})
	return size, objects
}

// check checks the sizes of a commit before its files are checked out.
func (g gitRun) check(ctx context.Context, commit string) error {
	// With -t it prints folders too. Those without files could otherwise keep it
	// busy without any output.
	out, err := g.repository.Run(ctx, "ls-tree", "-r", "-t", "-l", "-z", "--full-tree", "--end-of-options", commit)
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
		if fields[1] == "tree" {
			continue // its files count, with their folders
		}
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
	fetcher *Fetcher
	named   bool // connect only to hosts that the fetcher names

	mu  sync.Mutex
	err error // the first error of a connection
}

// proxy starts a proxy. The caller closes it.
func (f *Fetcher) proxy(ctx context.Context, named bool) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{address: listener.Addr().String(), fetcher: f, named: named}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.server.Serve(listener) }() // it ends with close
	return p, nil
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only https", http.StatusForbidden)
		return
	}
	out, err := p.dial(r.Context(), r.Host)
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

// dial connects to HOST:PORT. Git may have credentials for the host.
func (p *proxy) dial(ctx context.Context, address string) (net.Conn, error) {
	if host := (&url.URL{Host: address}).Hostname(); p.named && !p.fetcher.names(host) {
		return nil, p.fetcher.unnamed(host, "%w location of the module: it leads git to %s, which you did not name",
			registry.ErrInvalid, host)
	}
	return p.fetcher.Client.Dial(ctx, address)
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
