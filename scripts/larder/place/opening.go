package place

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/pkg/usage/daily"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// OnStore opens the registry's store, calls do with it, and closes it. It
// returns the result of do.
func (f *Finder) OnStore(ctx context.Context, do func(*Store) (output.View, error)) (found output.View, err error) {
	return f.onStoreBy(ctx, local.Open, do)
}

// OnStoreToRemove is like [Finder.OnStore], for a command that must work on a full disk.
func (f *Finder) OnStoreToRemove(
	ctx context.Context, do func(*Store) (output.View, error),
) (found output.View, err error) {
	return f.onStoreBy(ctx, local.OpenToRemove, do)
}

func (f *Finder) onStoreBy(
	ctx context.Context, open FolderOpener, do func(*Store) (output.View, error),
) (found output.View, err error) {
	s, err := f.openStore(ctx, open)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return do(s)
}

// Address returns how clients write the host of the command's registry. The
// registry is a store or a URL.
func (f *Finder) Address(ctx context.Context) (Addressing, error) {
	p, err := f.Find()
	if err != nil {
		return Addressing{}, err
	}
	if p.Host != "" {
		f.PrintRegistry()
		return Addressing{Host: p.Host}, nil
	}
	s, err := f.openStore(ctx, local.Open)
	if err != nil {
		return Addressing{}, err
	}
	return s.Addressing, s.Close()
}

// PrintRegistry prints which registry the command reads or writes.
func (f *Finder) PrintRegistry() {
	if !f.Quiet && !f.JSON {
		fmt.Fprintf(terminal.New(f.Stderr), "Registry %s\n", f.About)
	}
}

// OnReader calls do with a reader of the command's registry. The registry is a
// store or a URL.
func (f *Finder) OnReader(ctx context.Context, do func(*Reader) (output.View, error)) (output.View, error) {
	p, err := f.FindAny()
	if err != nil {
		return nil, err
	}
	if p.Host != "" {
		return f.onRemote(ctx, p, do)
	}
	return f.OnStore(ctx, func(s *Store) (output.View, error) {
		defer f.Waiting("reading the registry")()
		return do(s.Reader())
	})
}

// onRemote calls do with a reader of a registry that its URL names.
func (f *Finder) onRemote(
	ctx context.Context, p Place, do func(*Reader) (output.View, error),
) (found output.View, err error) {
	f.PrintRegistry()
	defer f.Waiting("reading the registry")()
	err = f.OnHost(p.Host, func(credentials *client.Client) error {
		remote, err := metadataclient.Open(ctx, credentials, p.Host)
		if err != nil {
			return err
		}
		found, err = do(&Reader{Client: remote, Host: Addressing{Host: p.Host}, Flags: f.RepeatedFlags()})
		return err
	})
	return found, err
}

// openStore opens the store. It creates nothing. It returns a
// [local.NoRegistryError] for a folder without a registry, and
// [registry.ErrNotFound] for a stack that does not exist.
func (f *Finder) openStore(ctx context.Context, open FolderOpener) (*Store, error) {
	p, err := f.FindStore()
	if err != nil {
		return nil, err
	}
	f.PrintRegistry()
	return f.OpenPlace(ctx, p, open)
}

// OpenPlace opens the store of a place, as open does for a folder.
func (f *Finder) OpenPlace(ctx context.Context, p Place, open FolderOpener) (s *Store, err error) {
	if p.Stack == "" {
		s, err = OpenFolder(ctx, p.Dir, open)
	} else {
		defer f.Waiting("opening stack " + p.Stack)()
		s, err = openStack(ctx, p.Stack)
	}
	if err == nil {
		s.Dir, s.Now, s.flags, s.Addressing = p.Dir, f.Now, f.RepeatedFlags(), addressingOf(s, p)
	}
	return s, err
}

// FolderOpener opens a registry in a folder, as [local.Open] does.
type FolderOpener func(ctx context.Context, dir string) (*local.Data, error)

// OpenFolder opens the registry in a folder of this machine. Tests replace it to
// kill the process at a change of the registry.
var OpenFolder = func(ctx context.Context, dir string, open FolderOpener) (*Store, error) {
	data, err := open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &Store{
		Catalog: data.Catalog, Objects: data.Objects, Remover: data, Host: data.Host,
		Downloads: daily.Open(dir),
		By:        User, Close: data.Close,
	}, nil
}

// User returns the user of this process as a publisher.
func User(context.Context) (registry.Publisher, error) {
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "unknown"}
	// A machine without a list of users can still publish.
	if u, err := user.Current(); err == nil {
		by.Name = u.Username
	}
	return by, nil
}

// unknownHost stands for the host of a stack that does not name it.
const unknownHost = "HOST"

// addressingOf returns the host that clients use for the registry of a store.
func addressingOf(s *Store, p Place) Addressing {
	switch {
	case s.Host != "":
		a := Addressing{Host: s.Host}
		if p.Dir == "" {
			return a
		}
		file := local.AuthorityOf(Absolute(p.Dir), s.Host)
		if file != Absolute(os.Getenv(authoritiesFromEnv)) {
			a.authority = file
		}
		return a
	case p.Stack != "":
		return Addressing{Host: unknownHost, Guessed: "Replace HOST with the registry's host, which the stack does not name."}
	}
	return Addressing{
		Host:    DefaultAddress,
		Guessed: "The host is the default of `larder serve`. Replace it if your registry has another host.",
	}
}
