package filling

import (
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// What reads the documents of a folder.
var (
	ParseIndex   = parseIndex
	ParseVersion = parseVersion
)

// Filenames returns what a document of a version names.
func Filenames(packages []folderPackage) []string {
	var names []string
	for _, p := range packages {
		names = append(names, p.filename)
	}
	return names
}

// Choose selects of what an origin offers, without a policy.
func Choose(w Wanted, offered []client.OfferedVersion, records []registry.MirrorVersion) (
	[]client.OfferedVersion, error,
) {
	met, err := w.match(offered, records)
	if err != nil {
		return nil, err
	}
	chosen, err := w.choose(met, records, func(client.OfferedVersion) error { return nil })
	return chosen.selected, err
}

// Decide returns how many versions may be mirrored now, and how many are too new.
func Decide(rule registry.MirrorRule, o registry.MirrorOrigin, offered []client.OfferedVersion, now time.Time) (
	ready, waiting int, err error,
) {
	d := &decider{m: &Mirror{}, rule: rule, now: now}
	d.set(o)
	w := Wanted{All: true}
	met, err := w.match(offered, nil)
	if err != nil {
		return 0, 0, err
	}
	chosen, err := w.choose(met, nil, func(v client.OfferedVersion) error { return d.ready(v.Version) })
	return len(chosen.selected), len(chosen.waiting), err
}

// Platforms selects of the platforms that a version has.
var Platforms = Wanted.platforms

// SetMaxNested lowers the bound of nested modules until a test ends.
func SetMaxNested(t testing.TB, n int) {
	before := maxNested
	maxNested = n
	t.Cleanup(func() { maxNested = before })
}
