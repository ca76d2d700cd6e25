package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// Over a registry's URL, a mirrored provider's list has the versions that wait.
func TestListMirroredThroughRegistry(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--require-token")
	const address = "registry.opentofu.org/hashicorp/random"
	p, err := registry.ParseMirrorProvider(address)
	if err != nil {
		t.Fatal(err)
	}
	table, err := sqlite.Open(t.Context(), filepath.Join(s.data, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	c := catalog.New(table)
	old, seen := registry.Version{Major: 3, Minor: 6}, time.Date(2026, 11, 22, 6, 55, 44, 0, time.UTC)
	linux := registry.Platform{OS: "linux", Arch: "amd64"}
	name, sum := p.Filename(old, linux), strings.Repeat("0", 64)
	record := registry.MirrorVersion{Version: old, Packages: []registry.MirrorPackage{{
		ProviderPackage: registry.ProviderPackage{
			Platform: linux, Filename: name, H1: "h1:x",
			StoredFile: registry.StoredFile{Object: p.FileKey(old, sum, name), SHA256: sum, Size: 7},
		},
		MirroredAt: seen, MirroredBy: registry.Publisher{Kind: registry.PublisherUser, Name: "ada"},
	}}}
	if _, _, err := c.Mirror.Add(t.Context(), p, record, "ada"); err != nil {
		t.Fatal(err)
	}
	published := map[registry.Version]time.Time{
		old: {}, {Major: 3, Minor: 8}: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	_, err = c.Mirror.UpdateOrigin(t.Context(), p, func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
		return o.See(published, seen), nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rule := registry.MirrorRule{Pattern: "*/*/*", MinAge: 7 * 24 * 60 * 60}
	if _, err := c.SetMirrorPolicy(t.Context(), registry.MirrorPolicy{Rules: []registry.MirrorRule{rule}}, ""); err != nil {
		t.Fatal(err)
	}
	reader := token(t, s.data, "--name", "reader", "--scope", "read:mirror/**")
	r := s.publisher(t, credentials(s.Host, reader))
	want := []string{
		"VERSION MIRRORED BY PLATFORM SIZE SIGNED BY REASON",
		"3.6.0 2026-11-22 06:55 UTC ada linux_amd64 7 B not verified age unknown",
		"",
		"NOT MIRRORED STATE REASON",
		"3.8.0 too new from 2999-01-08 00:00 UTC (minimum age 7 days, published 2999-01-01 00:00 UTC)",
		"",
		"To mirror a version early, the registry's operator can run " +
			"`larder mirror admit registry.opentofu.org/hashicorp/random VERSION --reason WHY`.",
	}
	var got []string
	for line := range strings.Lines(r.run(t, 0, nil, "list", address)) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("3.6.0\n", r.run(t, 0, nil, "list", address, "--quiet")); diff != "" {
		t.Errorf("--quiet (-want +got):\n%s", diff)
	}
	r.run(t, failure.ExitNotFound, nil, "list", "registry.opentofu.org/hashicorp/none")
	other := token(t, s.data, "--name", "other", "--scope", "read:modules/**")
	s.publisher(t, credentials(s.Host, other)).run(t, failure.ExitFailed, []string{"403"}, "list", address)
}
