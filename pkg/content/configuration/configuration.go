// Package configuration finds what makes OpenTofu and Terraform refuse to load
// a module. It evaluates nothing, and needs no provider.
//
// A problem counts only for a client that reads its file. OpenTofu reads
// main.tofu instead of main.tf, and Terraform reads no .tofu file.
package configuration

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/larder-registry/larder/pkg/content/safehcl"
)

// maxProblems is the largest number of problems of a file by the same clients, and of
// a folder.
const maxProblems = 100

// clients is a set of clients.
type clients uint8

const (
	openTofu clients = 1 << iota
	terraform

	both = openTofu | terraform
)

func (c clients) String() string {
	switch c {
	case openTofu:
		return "OpenTofu"
	case terraform:
		return "Terraform"
	}
	return "OpenTofu and Terraform"
}

// problem is a problem, and the clients that refuse to load a module with it. No
// client refuses a block of an unknown type that a later release may have.
type problem struct {
	*safehcl.Error
	by clients
}

// File has what Check needs of a file of configuration.
type File struct {
	name         string
	unparsed     bool
	problems     []problem
	declarations []declaration
}

// declaration is something that a folder may declare once.
type declaration struct {
	// key has the kind and the name, such as variable.region. It is the same for
	// two declarations of one thing.
	key string
	// shown is the thing for people, such as `variable "region"`.
	shown string
	place hcl.Pos
	// needsBase is the set of clients that refuse the declaration in an override
	// file if no other file has it.
	needsBase clients
	// merges is set if the declaration may be in several override files, or
	// several times in one.
	merges bool
}

// Read reads a parsed file. name is its path.
func Read(name string, file *hcl.File) File {
	r := reader{File: File{name: name}, override: IsOverride(name)}
	r.file(file.Body)
	return r.File
}

// Unparsed returns a file that does not parse. reason is a problem for the clients
// that read the file. It is nil if the caller reports it.
func Unparsed(name string, reason *safehcl.Error) File {
	f := File{name: name, unparsed: true}
	if reason != nil {
		f.problems = []problem{{reason, both}}
	}
	return f
}

// Check returns the problems of the files in a folder if no client can load
// it. Otherwise it returns notes about what only some releases or one of the
// clients can load.
func Check(folder []File) (problems []*safehcl.Error, notes []string) {
	readers, refusing := clients(0), clients(0)
	found := make(map[*safehcl.Error]clients)
	var order []*safehcl.Error
	for _, client := range []clients{openTofu, terraform} {
		files := readBy(client, folder)
		if len(files) == 0 {
			continue
		}
		readers |= client
		for _, p := range check(client, files) {
			switch {
			case p.by&client != 0:
				refusing |= client
			case p.by != 0:
				continue
			}
			if _, known := found[p.Error]; !known {
				order = append(order, p.Error)
			}
			found[p.Error] |= p.by & client
		}
	}
	order = merged(order, found)
	// The problems of one client only matter if the clients have none in common.
	shared := slices.ContainsFunc(order, func(e *safehcl.Error) bool { return found[e] == readers })
	for _, e := range order {
		switch by := found[e]; {
		case by == 0:
			notes = append(notes, e.Error())
		case readers == refusing && (by == readers || !shared):
			problems = append(problems, e)
		default:
			notes = append(notes, fmt.Sprintf("%s (only %s refuses it)", e, by))
		}
	}
	return problems[:min(len(problems), maxProblems)], notes[:min(len(notes), maxProblems)]
}

// merged returns the problems by file and place. Two problems with the same text
// are one.
func merged(all []*safehcl.Error, by map[*safehcl.Error]clients) []*safehcl.Error {
	slices.SortStableFunc(all, func(a, b *safehcl.Error) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Problem, b.Problem))
	})
	return slices.CompactFunc(all, func(a, b *safehcl.Error) bool {
		same := *a == *b
		if same {
			by[a] |= by[b]
			by[b] = by[a]
		}
		return same
	})
}

// readBy returns the files that a client reads, other files before override
// files.
func readBy(client clients, folder []File) (files []File) {
	names := make(map[string]bool)
	for _, f := range folder {
		names[f.name] = true
	}
	var overrides []File
	for _, f := range folder {
		switch {
		case client == terraform && isForOpenTofu(f.name), client == openTofu && names[Twin(f.name)]:
		case IsOverride(f.name):
			overrides = append(overrides, f)
		default:
			files = append(files, f)
		}
	}
	return append(files, overrides...)
}

// check returns the problems of the files that a client reads.
func check(client clients, files []File) (found []problem) {
	type first struct {
		file string
		declaration
	}
	known := make(map[string]first)
	var added [both + 1]int
	incomplete := slices.ContainsFunc(files, func(f File) bool { return f.unparsed })
	for _, f := range files {
		found = append(found, f.problems...)
		override := IsOverride(f.name)
		own := make(map[string]bool) // declared in this file
		for _, d := range f.declarations {
			before, declared := known[d.key]
			report := func(by clients, format string, args ...any) {
				if added[by]++; added[by] <= maxProblems {
					found = append(found, problem{at(f.name, d.place, format, args...), by})
				}
			}
			switch {
			case override && !declared && !incomplete && d.needsBase&client != 0:
				report(d.needsBase, "%s overrides nothing: no other file declares it", d.shown)
			case declared && (!override || own[d.key] && !d.merges):
				report(both, "%s is already declared at %s:%d", d.shown, before.file, before.place.Line)
			}
			if own[d.key] = true; !declared {
				known[d.key] = first{f.name, d}
			}
		}
	}
	return found
}

func at(name string, place hcl.Pos, format string, args ...any) *safehcl.Error {
	return &safehcl.Error{Name: name, Line: place.Line, Column: place.Column, Problem: fmt.Sprintf(format, args...)}
}
