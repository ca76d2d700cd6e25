package metadata_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	vpcHistory       = "/v1/modules/acme/vpc/aws/history"
	inventoryHistory = "/v1/providers/acme/inventory/history"
	nullHistory      = nullPath + "?history=true"
)

// list replaces a listing. Versions that have no record are missing.
func (s *store) list(path string, listing any) {
	s.t.Helper()
	document, err := protocol.Compress(listing)
	if err != nil {
		s.t.Fatal(err)
	}
	s.put(path, "listing", document)
}

// mirrorRecord returns the record of a version of the tests' mirrored provider,
// with a package for one platform.
func mirrorRecord(t testing.TB, number string) registry.MirrorVersion {
	t.Helper()
	name := "terraform-provider-null_" + number + "_linux_amd64.zip"
	return registry.MirrorVersion{Version: version(t, number), Packages: []registry.MirrorPackage{{
		ProviderPackage: registry.ProviderPackage{
			Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Filename: name, H1: "h1:x",
			StoredFile: registry.StoredFile{
				Object: "mirror/" + null + "/" + number + "/" + sum + "/" + name, SHA256: sum, Size: 116,
			},
		},
		SigningKey: "51852D87348FFC4C", MirroredAt: published,
		MirroredBy: registry.Publisher{Kind: registry.PublisherAWS, Name: "ada"},
	}}}
}

// withHistories has an address of each kind with a version in each state.
func withHistories(t testing.TB) *store {
	t.Helper()
	s := sample(t)
	gone := &registry.Withdrawal{At: published, By: "ada", Reason: "leaked"}
	copied := moduleRecord(t, "acme/vpc/aws", "2.0.0")
	copied.CopiedTo = []string{"other.example.com/acme/vpc/aws"}
	hidden := moduleRecord(t, "acme/vpc/aws", "1.0.1")
	hidden.Hidden, hidden.Deprecated = true, "broken"
	old := moduleRecord(t, "acme/vpc/aws", "1.0.0")
	old.Deprecated = "use 1.1.0"
	s.module("acme/vpc/aws", func(s *registry.Summary) { s.Deprecated = "use network" }, copied, hidden, old,
		registry.ModuleVersion{Version: version(t, "0.9.0"), Withdrawn: gone})
	s.list("modules/acme/vpc/aws", protocol.ModuleListing{Versions: []protocol.ListedModule{
		{Version: version(t, "2.0.0")}, {Version: version(t, "1.1.1")}, {Version: version(t, "1.0.0")},
	}})
	s.put("modules/acme/vpc/aws", "version/1.1.0", registry.ModuleVersion{Version: version(t, "1.1.0"), Withdrawn: gone})

	s.put("providers/acme/inventory", "version/0.9.0",
		registry.ProviderVersion{Version: version(t, "0.9.0"), Withdrawn: gone})
	s.list("providers/acme/inventory", protocol.ProviderListing{Versions: []protocol.ListedProvider{
		{Version: version(t, "1.1.0")}, {Version: version(t, "1.0.0")},
	}})

	s.mirrored(null, "3.2.0")
	s.list("mirror/"+null, protocol.MirrorListing{version(t, "3.2.1"), version(t, "3.2.0"), version(t, "3.1.0")})
	s.put("mirror/"+null, "version/3.2.0", mirrorRecord(t, "3.2.0"))
	s.put("mirror/"+null, "version/3.1.0", mirrorRecord(t, "3.1.0"))
	s.put("mirror/"+null, "version/3.0.0", registry.MirrorVersion{Version: version(t, "3.0.0"), Withdrawn: gone})
	decided := &registry.Decision{At: published, By: "ada", Reason: "announced"}
	s.origin(registry.MirrorOrigin{
		Address: null, SeenAt: published, Unsigned: decided,
		Versions: []registry.SeenVersion{
			{Version: version(t, "3.4.0"), PublishedAt: published.Add(-day)},
			{Version: version(t, "3.2.0"), PublishedAt: published.Add(-30 * day)},
			{Version: version(t, "3.1.0"), PublishedAt: published.Add(-day), Admitted: decided},
			{Version: version(t, "3.0.0"), PublishedAt: published.Add(-day)},
		},
		Keys: []registry.OriginKey{{
			ID: "51852D87348FFC4C", Fingerprint: "C874011F0AB405110D02105551852D87348FFC4C", Owner: "HashiCorp",
			SeenAt: published, Trusted: decided,
		}},
		Refused: []registry.RefusedVersion{{
			Version: version(t, "3.3.0"), At: published, Key: registry.OriginKey{
				ID: "34365D9472D7468F", Fingerprint: "C874011F0AB405110D02105534365D9472D7468F", Owner: "Someone",
			},
		}},
	})
	s.policy(sevenDays)
	return s
}

// A history has each version in its state with what its record has.
func TestHistories(t *testing.T) {
	t.Parallel()
	h := withHistories(t).serveAt(clock.At(published))
	publisher := moduleRecord(t, "acme/vpc/aws", "2.0.0").PublishedBy
	gone := &registry.Withdrawal{At: published, By: "ada", Reason: "leaked"}
	state := func(number, state, reason string) protocol.VersionState {
		s := protocol.VersionState{Version: version(t, number), State: state, Reason: reason}
		if state == protocol.StateWithdrawn {
			s.Withdrawn = gone
		}
		return s
	}
	module := func(s protocol.VersionState, copies ...string) protocol.PastModule {
		return protocol.PastModule{
			VersionState: s, Description: "The network of acme/vpc/aws", PublishedAt: published, PublishedBy: publisher,
			SHA256: sum, ContentSHA256: sum, Size: 121, Copies: protocol.Copies{CopiedTo: copies},
		}
	}
	modules := protocol.ModuleHistory{
		Address: "acme/vpc/aws", AllDeprecated: "use network", Versions: []protocol.PastModule{
			module(state("2.0.0", "", ""), "other.example.com/acme/vpc/aws"),
			{VersionState: state("1.1.1", "missing", "")},
			{VersionState: state("1.1.0", "withdrawn", "leaked")},
			module(state("1.0.1", "hidden", "broken")),
			module(state("1.0.0", "deprecated", "use 1.1.0")),
			{VersionState: state("0.9.0", "withdrawn", "leaked")},
		},
	}
	if diff := cmp.Diff(modules, read[protocol.ModuleHistory](t, h, vpcHistory)); diff != "" {
		t.Errorf("module (-want +got):\n%s", diff)
	}
	linux := registry.Platform{OS: "linux", Arch: "amd64"}
	providers := protocol.ProviderHistory{Address: "acme/inventory", Versions: []protocol.PastProvider{
		{VersionState: state("1.1.0", "missing", "")},
		{
			VersionState: state("1.0.0", "", ""), PublishedAt: published, Protocols: []string{"6.0"},
			PublishedBy: registry.Publisher{Kind: registry.PublisherToken, Name: "ci"},
			Packages: []protocol.ProviderFile{{
				Platform: linux, Filename: "terraform-provider-inventory_1.0.0_linux_amd64.zip", SHA256: sum, H1: "h1:x", Size: 116,
			}},
			SigningKey: "51852D87348FFC4C", SumsSHA256: sum,
		},
		{VersionState: state("0.9.0", "withdrawn", "leaked")},
	}}
	if diff := cmp.Diff(providers, read[protocol.ProviderHistory](t, h, inventoryHistory)); diff != "" {
		t.Errorf("provider (-want +got):\n%s", diff)
	}
}

// The history of a mirrored provider is its description, with the packages, and
// with the withdrawn and the missing versions.
func TestMirroredHistory(t *testing.T) {
	t.Parallel()
	h := withHistories(t).serveAt(clock.At(published))
	described := read[protocol.MirroredProvider](t, h, nullPath)
	// Without the records, a missing version is like a mirrored one, and the entry
	// lacks the version that is withdrawn.
	want := []string{
		"3.4.0 too new", "3.3.0 refused", "3.2.1 available", "3.2.0 available", "3.1.0 available", "3.0.0 too new",
	}
	if diff := cmp.Diff(want, states(described)); diff != "" {
		t.Errorf("states of the description (-want +got):\n%s", diff)
	}
	got := read[protocol.MirroredProvider](t, h, nullHistory)
	want[2], want[5] = "3.2.1 missing", "3.0.0 withdrawn"
	if diff := cmp.Diff(want, states(got)); diff != "" {
		t.Errorf("states of the history (-want +got):\n%s", diff)
	}
	for i, v := range got.Versions {
		number := v.Version.String()
		switch v.State {
		case "available":
			name := "terraform-provider-null_" + number + "_linux_amd64.zip"
			files := []protocol.MirroredFile{{
				ProviderFile: protocol.ProviderFile{
					Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Filename: name, SHA256: sum, H1: "h1:x", Size: 116,
				},
				SigningKey: "51852D87348FFC4C", MirroredAt: published,
				MirroredBy: registry.Publisher{Kind: registry.PublisherAWS, Name: "ada"},
			}}
			if diff := cmp.Diff(files, v.Packages); diff != "" {
				t.Errorf("packages of %s (-want +got):\n%s", number, diff)
			}
			got.Versions[i].Packages = nil
		case "withdrawn":
			gone := protocol.MirroredVersion{
				Version: v.Version, State: "withdrawn", Reason: "leaked",
				Withdrawn: &registry.Withdrawal{At: published, By: "ada", Reason: "leaked"},
			}
			if diff := cmp.Diff(gone, v); diff != "" {
				t.Errorf("%s (-want +got):\n%s", number, diff)
			}
			got.Versions[i] = described.Versions[i]
		case "missing":
			if diff := cmp.Diff(protocol.MirroredVersion{Version: v.Version, State: "missing"}, v); diff != "" {
				t.Errorf("%s (-want +got):\n%s", number, diff)
			}
			got.Versions[i] = described.Versions[i]
		}
	}
	if diff := cmp.Diff(described, got); diff != "" {
		t.Errorf("everything else (-description +history):\n%s", diff)
	}
	if got.MinAge != sevenDays.MinAge {
		t.Errorf("the minimum age is %d, want %d", got.MinAge, sevenDays.MinAge)
	}
	if got.Unsigned == nil || got.Unsigned.By != "ada" {
		t.Errorf("versions without a signature are accepted by %+v, want ada", got.Unsigned)
	}
	if refused := got.Versions[1]; refused.KeyOwner != "Someone" {
		t.Errorf("the key of %s belongs to %q, want Someone", refused.Version, refused.KeyOwner)
	}
}

// The keys of objects are in no history.
func TestHistoriesWithoutKeys(t *testing.T) {
	t.Parallel()
	h := withHistories(t).serveAt(clock.At(published))
	for path, key := range map[string]string{
		vpcHistory: sum + ".tar.gz", inventoryHistory: sum + "/", nullHistory: sum + "/",
	} {
		body := h.get(t, path).Body.String()
		if !strings.Contains(body, sum) {
			t.Errorf("%s lacks %s: %s", path, sum, body)
		}
		for _, text := range []string{key, `"object"`, `"docs"`, `"words"`} {
			if strings.Contains(body, text) {
				t.Errorf("%s has %s: %s", path, text, body)
			}
		}
	}
}

// An address without a listed version has a history.
func TestHistoriesOfUnlisted(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	hidden := moduleRecord(t, "acme/vpc/aws", "1.0.0")
	hidden.Hidden, hidden.Deprecated = true, "broken"
	s.module("acme/vpc/aws", func(s *registry.Summary) { s.Deprecated = "use network" }, hidden)
	gone := &registry.Withdrawal{At: published, By: "ada", Reason: "leaked"}
	one := version(t, "1.0.0")
	unlisted := func(path, partition, address string, record any) {
		s.put(path, "listing", protocol.Document{})
		s.put(path, "version/1.0.0", record)
		s.put(partition, path, registry.Summary{Address: address, Unlisted: true, Withdrawn: []registry.Version{one}})
	}
	unlisted("providers/acme/inventory", "catalog/acme", "acme/inventory",
		registry.ProviderVersion{Version: one, Withdrawn: gone})
	unlisted("mirror/"+null, "catalog/mirror", null, registry.MirrorVersion{Version: one, Withdrawn: gone})
	h := s.serve()
	for path, want := range map[string]string{
		vpcHistory: "1.0.0 hidden", inventoryHistory: "1.0.0 withdrawn", nullHistory: "1.0.0 withdrawn",
	} {
		all := read[struct {
			Versions []protocol.VersionState
		}](t, h, path).Versions
		if len(all) != 1 {
			t.Fatalf("%s: %d versions, want 1", path, len(all))
		}
		if got := all[0].Version.String() + " " + all[0].State; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		described := strings.TrimSuffix(strings.TrimSuffix(path, "/history"), "?history=true")
		if w := h.get(t, described); w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404: %s", described, w.Code, w.Body)
		}
	}
	if got := read[protocol.ModuleHistory](t, h, vpcHistory).AllDeprecated; got != "use network" {
		t.Errorf("all versions are deprecated: %q, want %q", got, "use network")
	}
}

// An item that cannot be read is an error, which the log explains. Only the
// origin and the policy of the mirror are a warning, without the reason.
func TestDamagedHistories(t *testing.T) {
	t.Parallel()
	const (
		origin = `{"address":"` + null + `","origin":"eA=="}`
		tooNew = "versions that are too new are not listed, because the mirror policy is damaged"
		none   = "versions that are too new or refused are not listed, because the data about the origin is damaged"
	)
	for name, test := range map[string]struct {
		path, partition, sort, data string
		status                      int
		warnings                    []string
	}{
		"record of a module":   {vpcHistory, "modules/acme/vpc/aws", "version/1.0.0", "x", 500, nil},
		"listing of a module":  {vpcHistory, "modules/acme/vpc/aws", "listing", "x", 500, nil},
		"entry of a module":    {vpcHistory, "catalog/acme", "modules/acme/vpc/aws", "x", 500, nil},
		"record of a provider": {inventoryHistory, "providers/acme/inventory", "version/0.9.0", "x", 500, nil},
		"mirrored record":      {nullHistory, "mirror/" + null, "version/3.1.0", "x", 500, nil},
		"mirrored listing":     {nullHistory, "mirror/" + null, "listing", "x", 500, nil},
		"policy":               {nullHistory, "policy", "mirror", "x", 200, []string{tooNew}},
		"origin":               {nullHistory, "mirror/providers", null, origin, 200, []string{none}},
		"policy, description":  {nullPath, "policy", "mirror", "x", 200, []string{tooNew}},
		"origin, description":  {nullPath, "mirror/providers", null, origin, 200, []string{none}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withHistories(t)
			s.put(test.partition, test.sort, protocol.Document(test.data))
			h := s.serveAt(clock.At(published))
			w := h.get(t, test.path)
			if w.Code != test.status {
				t.Fatalf("status %d, want %d: %s", w.Code, test.status, w.Body)
			}
			if log := h.log.String(); !strings.Contains(log, "item "+test.partition+" "+test.sort) {
				t.Errorf("the log does not name the item: %s", log)
			}
			if test.status != http.StatusOK {
				return
			}
			d := read[protocol.MirroredProvider](t, h, test.path)
			if diff := cmp.Diff(test.warnings, d.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			for _, v := range d.Versions {
				if v.AgeUnknown {
					t.Errorf("the age of %s is unknown", v.Version)
				}
			}
		})
	}
}
