package extract

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Document is the documentation of a module, ready to be stored.
type Document struct {
	// Data is the encoded [docs.Documentation]. It is empty if the module could
	// not be documented.
	Data []byte
	// Files is the encoded [docs.Files], made by [Files]. It can be empty too.
	Files []byte
	// Contents are the encoded [registry.Contents] of the module.
	Contents []byte
	// Notes describe what is missing in the documentation. There are at most 20,
	// and each is one line of at most 300 bytes.
	Notes []string
	// Sources are the sources of the module blocks and of the providers of the
	// module, sorted. They leave out those of examples.
	Sources []string
	// Callable are the folders to suggest in module blocks.
	Callable []docs.Folder
}

// shownNotes is the largest number of notes of a Document, and shownNote the
// largest size of one, in bytes.
const (
	shownNotes = 20
	shownNote  = 300
)

// timeout is how long documenting a module may take.
const timeout = 10 * time.Second

// Encode extracts the documentation of a module with a name, such as vpc for
// acme/vpc/aws, and encodes it and its files. If the documentation is not
// possible or takes more than 10 seconds, the result has none, and its only
// note is [Failed] or [TooSlow]. Only the end of ctx is an error.
func Encode(ctx context.Context, name string, m archive.Module) (Document, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var d Document
	files, shown, failed := Files(m)
	found, err := Extract(limited, name, m.Sources, shown)
	if err == nil {
		d.Data, err = docs.Encode(found)
	}
	switch {
	case ctx.Err() != nil:
		return Document{}, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		d.Notes = []string{TooSlow}
	case err != nil:
		d.Notes = []string{Failed}
	default:
		d.Contents, d.Notes, d.Sources = ContentsOf(found).Encode(), Notes(found), sources(found)
		d.Callable = found.Callable()
	}
	if d.Files = files; failed != nil {
		d.Notes = append(d.Notes, NoFiles)
	}
	return d, nil
}

func sources(d docs.Documentation) (all []string) {
	for _, folder := range append([]docs.Folder{d.Root}, d.Submodules...) {
		for _, m := range folder.Dependencies {
			all = append(all, m.Source)
		}
		for _, p := range folder.ProviderDependencies {
			all = append(all, p.Source)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Notes returns the notes of documentation for a [Document].
func Notes(d docs.Documentation) (notes []string) {
	for _, note := range d.Notes[:min(len(d.Notes), shownNotes)] {
		notes = append(notes, printable.Line(note, shownNote))
	}
	return notes
}

// The notes for a module without documentation or files.
const (
	TooSlow = "The module has no documentation, because extracting it took too long."
	Failed  = "The module has no documentation, because it could not be extracted."
	NoFiles = "The files of the module cannot be shown, because they could not be packed."
)
