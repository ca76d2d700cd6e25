// Package fetch fetches modules from their locations, as OpenTofu and Terraform
// do: from an archive, or from a Git repository.
//
// Modules are untrusted. The package writes nothing outside the folder that it is
// given, and bounds the bytes, the files and the time. It connects only to
// addresses that its client permits.
package fetch

import (
	"context"
	"crypto/md5"  //nolint:gosec // locations can have such checksums
	"crypto/sha1" //nolint:gosec // locations can have such checksums
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/client/location"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// The bounds of a module. Tests lower them.
var (
	// maxBytes bounds an archive, the objects of a repository, and the files of a
	// module, in bytes.
	maxBytes int64 = 1 << 30
	// maxFiles bounds the files of an archive or a commit.
	maxFiles = 100_000
	// maxDirectory bounds the directory of a zip, which is read into memory, in
	// bytes.
	maxDirectory = 16 << 20
)

// maxParts bounds the average number of parts of a path. An archive of a few
// kilobytes can otherwise have millions of folders.
const maxParts = 10

// maxHops is how often a location can lead to another one.
const maxHops = 10

// Fetcher fetches modules.
type Fetcher struct {
	// Client sends the requests. Confine it if the registry is not trusted.
	Client *client.Client
	// Hosts are the hosts for which git may use the credentials and keys of this
	// machine. It fetches from other hosts without them.
	Hosts []string
	// Progress may be nil.
	Progress progress.Reporter
	// MaxBytes is the maximum size of an archive. If 0, it is 1 GiB.
	MaxBytes int64
	// Received counts the bytes of archives. It may be nil.
	Received *atomic.Int64

	mu     sync.Mutex
	others map[string]bool  // other hosts from which modules came
	failed map[string]error // by repository: the limit that it exceeded
}

// Others lists the hosts from which modules came, without those in Hosts.
func (f *Fetcher) Others() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.others))
}

func (f *Fetcher) names(host string) bool {
	name := registry.CanonicalName(host)
	return slices.ContainsFunc(f.Hosts, func(named string) bool { return registry.CanonicalName(named) == name })
}

// Folder fetches a module into an empty folder, and returns the folder with the
// files of the module, which is dir or below it. Errors of the location or its
// content are registry.ErrInvalid.
func (f *Fetcher) Folder(ctx context.Context, from client.ModuleLocation, dir string) (string, error) {
	at, err := f.Locate(ctx, from)
	if err != nil {
		return "", err
	}
	if at.Git {
		err = f.cloneComplete(ctx, at, dir)
	} else {
		err = f.unpack(ctx, from, at, "", dir)
	}
	if err != nil {
		return "", err
	}
	if host := at.URL.Hostname(); !f.names(host) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.others == nil {
			f.others = make(map[string]bool)
		}
		f.others[host] = true
	}
	return Below(dir, at.Folder)
}

// Below returns the folder with a path in dir. Links must not lead out of dir.
func Below(dir, folder string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if folder == "" {
		return dir, nil
	}
	if info, err := root.Stat(filepath.FromSlash(folder)); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%w location of the module: there is no folder %s in it", registry.ErrInvalid, folder)
	}
	return filepath.Join(dir, filepath.FromSlash(folder)), nil
}

// Unpack fetches an archive, and unpacks all of it into an empty folder. If the archive
// names its commit, as those of Git do, that must be commit, unless it is empty.
func (f *Fetcher) Unpack(ctx context.Context, at location.Location, commit, dir string) error {
	return f.unpack(ctx, client.ModuleLocation{}, at, commit, dir)
}

// File writes the archive of a module to w, unchanged.
func (f *Fetcher) File(ctx context.Context, from client.ModuleLocation, w io.Writer) error {
	at, err := f.Locate(ctx, from)
	if err != nil {
		return err
	}
	if at.Git || at.Folder != "" {
		return fmt.Errorf("%w location of the module: it is not an archive of this module", registry.ErrInvalid)
	}
	return f.download(ctx, from, at, w)
}

// Locate parses a location, and follows those that lead to others.
func (f *Fetcher) Locate(ctx context.Context, from client.ModuleLocation) (location.Location, error) {
	folder := ""
	for range maxHops {
		at, err := location.Parse(from.Reference, from.Base, from.Direct)
		if err != nil {
			return at, err
		}
		if at.Folder == "" {
			at.Folder = folder
		} else if folder != "" {
			at.Folder += "/" + folder
		}
		if at.Git || at.Type != "" || from.Direct {
			return at, nil
		}
		folder = at.Folder
		reference, base, err := f.Client.Elsewhere(ctx, at.URL.String())
		if err != nil {
			return at, err
		}
		from = client.ModuleLocation{Reference: reference, Base: base}
	}
	return location.Location{}, fmt.Errorf("%w location of the module: it leads to more than %d others",
		registry.ErrInvalid, maxHops)
}

// download writes the bytes of an archive to w, and compares their checksum.
func (f *Fetcher) download(
	ctx context.Context, from client.ModuleLocation, at location.Location, w io.Writer,
) error {
	sum := hashOf(at.Checksum.Algorithm)
	if sum != nil {
		w = io.MultiWriter(w, sum)
	}
	end, do := func() {}, f.Client.Download
	if from.Service != nil {
		do = from.Service.Download
	}
	limit := maxBytes
	if f.MaxBytes > 0 {
		limit = min(limit, f.MaxBytes)
	}
	err := do(ctx, at.URL.String(), w, limit, func(size int64) (received func(int64)) {
		var shown func(int64)
		shown, end = progress.Or(f.Progress).Transfer("fetching an archive of "+at.URL.Host, size)
		return func(n int64) {
			if f.Received != nil {
				f.Received.Add(n)
			}
			shown(n)
		}
	})
	end()
	if err != nil {
		return err
	}
	if sum != nil && hex.EncodeToString(sum.Sum(nil)) != at.Checksum.Sum {
		return fmt.Errorf("%w archive: the bytes that %s sent do not have the checksum of their location",
			registry.ErrInvalid, at.URL.Host)
	}
	return nil
}

func hashOf(algorithm string) hash.Hash {
	switch algorithm {
	case "md5":
		return md5.New() //nolint:gosec // see above
	case "sha1":
		return sha1.New() //nolint:gosec // see above
	case "sha256":
		return sha256.New()
	case "sha512":
		return sha512.New()
	}
	return nil
}

func (f *Fetcher) unpack(
	ctx context.Context, from client.ModuleLocation, at location.Location, commit, dir string,
) (err error) {
	packed, err := temporary.File("larder-archive-*")
	if err != nil {
		return err
	}
	_ = os.Remove(packed.Name()) // Windows removes it below
	defer func() {
		err = errors.Join(err, packed.Close())
		_ = os.Remove(packed.Name())
	}()
	if err := f.download(ctx, from, at, packed); err != nil {
		return errs.DiskFull(err)
	}
	kind := at.Type
	if kind == "" {
		kind = sniff(packed)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return regularfile.Unreadable(dir, err)
	}
	defer root.Close()
	u := unpacker{ctx: ctx, root: root, commit: commit}
	if err := u.unpack(kind, packed); err != nil {
		return fmt.Errorf("cannot unpack the archive of %s: %w", at.URL.Host, errs.DiskFull(err))
	}
	return nil
}

// shown returns a URL without its query and its user.
func shown(u *url.URL) string {
	bare := *u
	bare.User, bare.RawQuery = nil, ""
	return strings.TrimSuffix(bare.String(), "?")
}
