package oddities_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/oddities"
	"github.com/larder-registry/larder/internal/testkit/programs"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/client/fetch"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/copying"
)

// originHost is the host of the origin in addresses of the mirror, since clients
// request nothing of a host with a port from a mirror.
const originHost = "origin.example.com"

func TestMain(m *testing.M) {
	inspection.RunIfChild()
	os.Exit(m.Run())
}

// newStore returns an empty registry.
func newStore(t *testing.T, host string) copying.Store {
	t.Helper()
	data, _, err := local.Create(t.Context(), filepath.Join(t.TempDir(), "registry"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = data.Close() })
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "operator"}
	return copying.Store{Host: host, Publisher: &publish.Publisher{Catalog: data.Catalog, Objects: data.Objects, By: by}}
}

// newClient returns a client that trusts an origin, without a proxy.
func newClient(o *oddities.Origin) *client.Client {
	tls := o.Client().Transport.(*http.Transport).TLSClientConfig //nolint:forcetypeassert // of httptest
	c := client.New(nil, "larder/test", &http.Transport{TLSClientConfig: tls.Clone()})
	c.Wait = time.Millisecond
	return c
}

// openOrigin opens an origin to copy from.
func openOrigin(t *testing.T, o *oddities.Origin) copying.Origin {
	t.Helper()
	c := newClient(o).Confine(t.Context(), o.URL)
	origin, err := copying.OpenHost(t.Context(), c, o.Host, &fetch.Fetcher{Client: c, Hosts: []string{o.Host}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return origin
}

// copyFrom returns a function that copies a version from an origin.
func copyFrom(t *testing.T, o *oddities.Origin) func(t *testing.T, address, version string) cell {
	t.Helper()
	origin, to := openOrigin(t, o), newStore(t, "prod.example.com")
	return func(t *testing.T, address, version string) cell {
		a, err := registry.ParseAddress(address)
		if err != nil {
			return errorCell(err)
		}
		w := copying.Wanted{Address: a, As: a}
		if n, err := registry.ParseTag(version); err == nil {
			w.Exact = &n
		}
		return copyCell(t, &copying.Copier{Origin: origin, Target: copying.StoreTarget{Store: to}, AddKeys: true}, w)
	}
}

// copyCell copies one version. Copied again, it must be unchanged. The verdict about a provider has the number of its packages, if it does
// not have the usual two.
func copyCell(t *testing.T, c *copying.Copier, w copying.Wanted) cell {
	t.Helper()
	first := copyOnce(t, c, w)
	to, isStore := c.Target.(copying.StoreTarget)
	if p, isProvider := w.Address.(registry.Provider); isProvider && isStore && strings.HasPrefix(first.verdict, string(copying.Copied)) {
		all, err := to.Catalog.Providers.All(t.Context(), p)
		isHere := func(p registry.ProviderPackage) bool { return p.String() == oddities.Here }
		if err != nil || len(all) != 1 {
			t.Errorf("%s: the records are %v, %v", p, all, err)
		} else if !slices.ContainsFunc(all[0].Packages, isHere) {
			first.verdict = leftOut
		} else if n := len(all[0].Packages); n != 2 {
			first.verdict = strings.Replace(first.verdict, string(copying.Copied), fmt.Sprintf("copied %d", n), 1)
		}
	}
	if strings.HasPrefix(first.verdict, string(copying.Copied)) {
		if again := copyOnce(t, c, w); again.verdict != string(copying.Unchanged) {
			t.Errorf("%s: copied again: %v", w.Address, again)
		}
	}
	return first
}

func copyOnce(t *testing.T, c *copying.Copier, w copying.Wanted) cell {
	t.Helper()
	report, err := c.Copy(t.Context(), []copying.Wanted{w})
	if len(report.Results) == 0 {
		return errorCell(err)
	}
	switch r := report.Results[0]; r.Status {
	case copying.Failed:
		return errorCell(r.Err)
	case copying.Skipped:
		return cell{string(r.Status), r.Reason}
	default:
		ofRelease := slices.DeleteFunc(slices.Clone(r.Notes), func(note string) bool { return strings.HasPrefix(note, "added key ") })
		return noted(string(r.Status), ofRelease)
	}
}

// addFrom returns a function that mirrors a provider with `mirror add`.
func addFrom(t *testing.T, o *oddities.Origin) func(t *testing.T, address, version string) cell {
	t.Helper()
	to := newStore(t, "mirror.example.com")
	here, err := registry.ParsePlatform(oddities.Here)
	if err != nil {
		t.Fatal(err)
	}
	m := filling.Mirror{Catalog: to.Catalog, Objects: to.Objects, Publisher: to.Publisher, Client: newClient(o)}
	return func(t *testing.T, address, version string) cell {
		p, err := registry.ParseMirrorProvider(originHost + "/" + address)
		if err != nil {
			return errorCell(err)
		}
		results, err := m.Add(t.Context(), filling.Wanted{
			Address: p, Constraint: version, Upstream: o.URL, Platforms: []registry.Platform{here},
		})
		if err != nil {
			return errorCell(err)
		}
		if len(results) == 0 || !results[0].Changed() {
			return cell{refused, fmt.Sprint(results)}
		}
		return noted("mirrored", results[0].Notes)
	}
}

// parseMirrored parses the address of a provider or a module at the origin.
func parseMirrored(address string) (registry.MirrorAddress, error) {
	if strings.Count(address, "/") == 2 {
		return registry.ParseMirrorModule(originHost + "/" + address)
	}
	return registry.ParseMirrorProvider(originHost + "/" + address)
}

// policy is the policy of a mirror.
type policy registry.MirrorPolicy

// MirrorPolicy implements [admission.Source].
func (p policy) MirrorPolicy(context.Context) (*registry.MirrorPolicy, error) {
	return (*registry.MirrorPolicy)(&p), nil
}

// pullFrom returns a function that mirrors a provider or a module like the first
// request of a client.
func pullFrom(t *testing.T, o *oddities.Origin) func(t *testing.T, address, version string) cell {
	t.Helper()
	to := newStore(t, "mirror.example.com")
	rule := registry.MirrorRule{
		Pattern: "*/*/*", Line: 1, Pull: registry.PullOpen, Upstream: o.URL,
		Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
	ofModules := rule
	ofModules.Pattern, ofModules.Pull = "*/*/*/*", registry.PullClosed
	all := policy{
		Text: "-", SetAt: time.Now().UTC(), SetBy: "somebody", Rules: []registry.MirrorRule{rule, ofModules},
	}
	// The leases of the worker end by this clock, so none ends on a slow machine.
	ahead := time.Now().Add(time.Hour)
	worker := pull.New(pull.Options{
		Now:     func() time.Time { return ahead },
		Catalog: to.Catalog, Objects: to.Objects, Client: newClient(o), MaxBytes: 1 << 26,
		Inspector: inspection.Process{}, Log: slog.New(slog.DiscardHandler), Policies: admission.NewPolicies(all, nil),
	})
	return func(t *testing.T, address, version string) cell {
		p, err := parseMirrored(address)
		if err != nil {
			return errorCell(err)
		}
		n, err := registry.ParseVersion(version)
		if err != nil {
			return errorCell(err)
		}
		var failed error
		for _, action := range []protocol.PullAction{protocol.PullIndex, protocol.PullVersion, protocol.PullCopy} {
			_, err := worker.Do(t.Context(), protocol.PullRequest{
				Action: action, Address: p.String(), Version: version, PolicySetAt: all.SetAt,
			})
			failed = errors.Join(failed, err)
		}
		if record, err := to.Catalog.Mirror.Get(t.Context(), p, n); err == nil {
			if record.Module != nil {
				return noted("mirrored", record.Module.Notes)
			}
			return cell{verdict: "mirrored"}
		}
		state, err := to.Catalog.Mirror.State(t.Context(), p, originHost, &n, time.Now())
		if err != nil {
			t.Error(err)
			return cell{}
		}
		if problem := state.Version.Problem; problem != "" {
			return errorCell(errors.New(problem))
		}
		if failed != nil {
			return errorCell(failed)
		}
		return cell{refused, "the mirror does not list it"}
	}
}

// pinned is the release of Terraform that CI tests with. Others differ in some rows.
const pinned = "Terraform v1.11.4"

// inits returns a column for each client: the result of init with a configuration of
// a row. authorities is a file with the certificates of the registry.
func inits(t *testing.T, authorities string, configuration func(row int) string) []column {
	t.Helper()
	columns := []column{{name: "tofu", client: "tofu"}, {name: "terraform", client: "terraform"}}
	found, missing := clients.Find()
	for _, c := range found {
		s := clients.Session{Client: c, Home: t.TempDir()}
		if out, err := s.Run(t.Context(), t.TempDir(), "version"); c.Name == "terraform" && !strings.Contains(out, pinned) {
			missing = append(missing, fmt.Sprintf("terraform: it is not %s: %v", pinned, err))
			continue
		}
		use := func(t *testing.T, row int) cell {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(configuration(row)), 0o600); err != nil {
				t.Error(err)
			}
			s := clients.Session{Client: c, Home: t.TempDir(), CAFile: authorities, Env: []string{
				"GIT_SSL_CAINFO=" + authorities, "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
			}}
			out, err := s.Run(t.Context(), dir, "init", "-no-color", "-input=false")
			return initCell(strings.ReplaceAll(out, dir, "DIR"), err)
		}
		for i := range columns {
			if columns[i].client == c.Name {
				columns[i].use = use
			}
		}
	}
	for _, why := range missing {
		if strings.HasPrefix(why, "tofu") && programs.Required() {
			t.Fatal(why)
		}
		t.Log("LEFT OUT:", why)
	}
	return columns
}
