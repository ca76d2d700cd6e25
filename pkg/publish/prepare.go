package publish

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
)

// PreparedFile is a file that is ready to be sent.
type PreparedFile struct {
	// Name is the one that a release has for it.
	Name   string
	SHA256 string
	Size   int64
	open   func() (io.ReadCloser, error)
}

// Open returns what the file holds, from its beginning, as often as it takes and for several at once.
func (f PreparedFile) Open() (io.ReadCloser, error) { return f.open() }

// PreparedModule is a module that is ready to be published through a registry's own endpoint.
type PreparedModule struct {
	Address registry.Module
	// Result is what there is to say of it before: its record lacks who publishes it.
	Result
	// Archive is the one file to send.
	Archive PreparedFile

	packed *os.File
}

// Close gives up the packed module.
func (m PreparedModule) Close() { discard(m.packed) }

// PrepareModule does all of Module that can be done without the registry. The result is to be closed.
func (p *Publisher) PrepareModule(ctx context.Context, m Module) (PreparedModule, error) {
	packed, result, err := p.packModule(ctx, m)
	if err != nil {
		return PreparedModule{}, err
	}
	if !m.DryRun {
		p.leaveOut(result.LeftOut)
	}
	name := m.Address.Name + ".tar.gz"
	record := &result.Record
	record.Object = registry.UploadKey(m.Address.Path(), m.Version, record.SHA256, name)
	return PreparedModule{m.Address, result, PreparedFile{name, record.SHA256, record.Size, func() (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(packed, 0, record.Size)), nil
	}}, packed}, nil
}

// PreparedRelease is a provider's release that is ready to be published through a registry's own endpoint.
type PreparedRelease struct {
	Address registry.Provider
	// ProviderResult is what there is to say of it before: its record lacks who publishes it, and has for a signing key
	// the one that the signature names, which may be a part of another.
	ProviderResult
	// Send are the files to send: zips, SHA256SUMS, its signature and, where there is one, the manifest.
	Send []PreparedFile
}

// PrepareProvider does all of Provider that can be done without the registry: whether the signature is by a key of the
// namespace is for that to say.
func (p *Publisher) PrepareProvider(ctx context.Context, m Provider) (PreparedRelease, error) {
	p.step("reading " + filepath.Clean(m.Dir))
	names, r, err := p.nameProvider(m)
	if err != nil {
		return PreparedRelease{}, err
	}
	if err := p.readZips(ctx, m, names, &r, archive.ReadProviderFile); err != nil {
		return PreparedRelease{}, err
	}
	signed, err := r.signed(m, names, p.now())
	if err != nil {
		return PreparedRelease{}, err
	}
	r.record.SigningKey = signed.key
	r.addSigned(m, names, signed)

	record := &r.record
	at := func(f *registry.StoredFile, name string) {
		f.Object = registry.UploadKey(m.Address.Path(), record.Version, f.SHA256, name)
	}
	for i := range record.Packages {
		at(&record.Packages[i].StoredFile, record.Packages[i].Filename)
	}
	at(&record.Sums, names.sums)
	at(&record.Signature, names.sums+".sig")
	prepared := PreparedRelease{Address: m.Address, ProviderResult: ProviderResult{Record: *record, Shared: protocol.SharedHashes(record.Packages)}}
	if names.manifest != "" {
		manifest, err := regularfile.Read(names.manifest, MaxManifest)
		if err != nil {
			return PreparedRelease{}, err
		}
		r.add(m, names.manifestName(), manifest)
	}
	for _, f := range r.files {
		prepared.Send = append(prepared.Send, PreparedFile{f.name, f.stored.SHA256, f.stored.Size, func() (io.ReadCloser, error) {
			if f.path != "" {
				return regularfile.Open(f.path)
			}
			return io.NopCloser(bytes.NewReader(f.data)), nil
		}})
	}
	return prepared, nil
}
