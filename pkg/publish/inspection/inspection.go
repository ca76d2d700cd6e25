// Package inspection reads archives from untrusted users. A [Process] does so
// in a child process that limits itself, so the parent survives a crash of the
// reader. [InThisProcess] is for programs that inspect their own archives, and
// for tests.
package inspection

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/secrets"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Kind is the kind of an archive.
type Kind string

// The kinds of archives.
const (
	Module      Kind = "module"
	ProviderZip Kind = "provider"
)

// Request describes the archive to inspect.
type Request struct {
	Kind Kind `json:"kind"`
	// Size of the archive in bytes.
	Size int64 `json:"size"`
	// Name is that of a module, for its documentation.
	Name string `json:"name,omitempty"`
	// New makes what is [errs.Tolerated] an error, and secrets in files that are not
	// at or below the paths AllowSecrets.
	New          bool     `json:"new,omitempty"`
	AllowSecrets []string `json:"allow_secrets,omitempty"`
	// Part means that the module is a folder of what its origin has. It is then not valid
	// if it calls a folder outside of its own, which clients of the origin have.
	Part bool `json:"part,omitempty"`
	// ProviderType and Platform are those of a provider's zip.
	ProviderType string            `json:"provider_type,omitempty"`
	Platform     registry.Platform `json:"platform,omitzero"`
}

// Found is the result of inspecting a valid archive.
type Found struct {
	// SHA256 of the archive, in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
	// ContentSHA256 of a module, see [archive.Module].
	ContentSHA256 string `json:"content_sha256,omitempty"`
	// H1 of a provider, see [archive.Provider].
	H1 string `json:"h1,omitempty"`
	// Notes describe what is [errs.Tolerated].
	Notes []string `json:"notes,omitempty"`
	// Document is the documentation of a module. It is extracted after the
	// archive is known to be valid, so its failure does not make the archive
	// invalid.
	Document extract.Document `json:"-"`
}

// document extracts the documentation of a module. Tests replace it.
var document = extract.Encode

// InThisProcess inspects archives in the calling process.
type InThisProcess struct{}

// Inspect reads an archive to its end. It returns registry.ErrInvalid if the
// archive is not valid, the error of ctx, or the error of reading source.
func (InThisProcess) Inspect(ctx context.Context, request Request, source io.ReaderAt) (Found, error) {
	in := &tracked{ReaderAt: source}
	found, m, err := inspect(ctx, request, in)
	if in.failed != nil {
		return Found{}, in.failed
	}
	if err == nil && request.Kind == Module {
		found.Document, err = document(ctx, request.Name, m)
	}
	return found, err
}

// inspect reads an archive to its end. For a module, it also returns the
// content from which the documentation is extracted.
func inspect(ctx context.Context, request Request, source io.ReaderAt) (Found, archive.Module, error) {
	tolerated := errs.Tolerated{Existing: !request.New}
	switch request.Kind {
	case Module:
		stream := bufio.NewReaderSize(io.NewSectionReader(source, 0, request.Size), maxRead)
		var scanner *secrets.Scanner
		if request.New {
			scanner = &secrets.Scanner{Allowed: request.AllowSecrets}
		}
		found, err := archive.ScanModule(ctx, stream, scanner)
		if err != nil {
			return Found{}, archive.Module{}, err
		}
		tolerated.Add(found.Problems...)
		var problems errs.Problems
		for _, problem := range found.Problems {
			if request.Part && errors.Is(problem, archive.ErrOutside) {
				_ = problems.Add(problem)
			}
		}
		err = cmp.Or(problems.Add(tolerated.Check("")), problems.Add(secrets.Check(found.Secrets)), problems.Err(""))
		if err != nil {
			return Found{}, archive.Module{}, err
		}
		return Found{SHA256: found.SHA256, ContentSHA256: found.ContentSHA256, Notes: tolerated.Notes()}, found, nil
	case ProviderZip:
		found, err := archive.ReadProvider(ctx, source, request.Size, request.ProviderType)
		if err == nil {
			tolerated.Add(found.RunsOn(request.Platform))
			err = tolerated.Check("")
		}
		if err != nil {
			return Found{}, archive.Module{}, err
		}
		return Found{SHA256: found.SHA256, H1: found.H1, Notes: tolerated.Notes()}, archive.Module{}, nil
	}
	return Found{}, archive.Module{}, fmt.Errorf("cannot inspect an archive of kind %q", request.Kind)
}

// tracked records the first error of reading a source, which does not make the
// archive invalid.
type tracked struct {
	io.ReaderAt
	failed error
}

func (t *tracked) ReadAt(p []byte, offset int64) (int, error) {
	n, err := t.ReaderAt.ReadAt(p, offset)
	if err != nil && !errors.Is(err, io.EOF) && t.failed == nil {
		t.failed = err
	}
	return n, err
}
