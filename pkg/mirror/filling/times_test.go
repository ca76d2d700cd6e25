package filling_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// ofTofu is the tests' provider at the public registry of OpenTofu, whose protocol
// has no publication times.
var ofTofu = registry.MirrorAddress{Hostname: "registry.opentofu.org", Namespace: inventory.Namespace, Name: inventory.Name}

// timesPage is the document with the times of its versions.
const timesPage = "/registry/docs/providers/acme/inventory/index.json"

// timesAt returns the document with the publication times of versions.
func timesAt(published map[string]string) page {
	var versions []any
	for v, at := range published {
		versions = append(versions, map[string]any{"id": "v" + v, "published": at})
	}
	return page{json: map[string]any{"versions": versions, "is_blocked": false}}
}

// requests returns how often the document was requested, and the metadata of
// versions. Nobody but api.opentofu.org gets the former.
func (o *origin) requests(t *testing.T) string {
	t.Helper()
	metadata := 0
	for _, r := range o.releases {
		metadata += o.times("/v1/providers/acme/inventory/" + r.version)
	}
	n := o.times(timesPage)
	if host := o.hosts[timesPage]; n > 0 && host != "api.opentofu.org" {
		t.Errorf("%s got the request for the times", host)
	}
	return fmt.Sprintf("%d document, %d metadata", n, metadata)
}

// knownTimes returns the publication times that are recorded.
func (s *store) knownTimes(t *testing.T, address registry.MirrorAddress) map[string]string {
	t.Helper()
	o, err := catalog.New(s.table).Mirror.Origin(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]string)
	for _, v := range o.Versions {
		if !v.PublishedAt.IsZero() {
			known[v.Version.String()] = v.PublishedAt.Format(time.RFC3339)
		}
	}
	return known
}

// lookAt returns the versions of a provider that clients can get.
func (p *pulled) lookAt(t *testing.T, address registry.MirrorAddress) (string, error) {
	t.Helper()
	s, err := p.pull.Mirror.Catalog.Mirror.State(t.Context(), address, address.Hostname, nil, p.now)
	if err != nil {
		t.Fatal(err)
	}
	from := p.pull.With(s)
	found, failed := from.List(t.Context(), p.policy, address)
	if err := s.Update(t.Context(), from.Settle); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(found.Versions), failed
}

// The table describes which versions of a provider of registry.opentofu.org clients
// can get. The minimum age is 7 days. All versions are there the first time, unless
// one is listed on day 1.
func TestPullTimesOfAll(t *testing.T) {
	t.Parallel()
	const old, recent = "1.0.0", "2.0.0"
	broken := func(status int) page { return page{status: status} }
	for name, test := range map[string]struct {
		document page
		late     bool // 2.0.0 is listed on day 1
		wait     bool
		first    string
		week     string
		requests string // until then
	}{
		"times": {timesAt(map[string]string{old: on(-100), recent: on(-1)}), false, true,
			"[1.0.0]", "[2.0.0 1.0.0]", "1 document, 0 metadata"},
		"times, and an unknown age may be admitted": {timesAt(map[string]string{old: on(-100), recent: on(-1)}), false, false,
			"[1.0.0]", "[2.0.0 1.0.0]", "1 document, 0 metadata"},
		"times, of which one is backdated": {timesAt(map[string]string{old: on(-100), recent: on(-100)}), true, true,
			"[1.0.0]", "[1.0.0]", "1 document, 0 metadata"},
		"a time in the future": {timesAt(map[string]string{old: on(-100), recent: on(15)}), false, true,
			"[1.0.0]", "[1.0.0]", "1 document, 0 metadata"},
		"no time of one": {timesAt(map[string]string{old: on(-100)}), false, true,
			"[2.0.0 1.0.0]", "[2.0.0 1.0.0]", "2 document, 0 metadata"},
		"no time of a new one, which must wait": {timesAt(map[string]string{old: on(-100)}), true, true,
			"[1.0.0]", "[1.0.0]", "1 document, 0 metadata"},
		"no time of a new one, which need not wait": {timesAt(map[string]string{old: on(-100)}), true, false,
			"[2.0.0 1.0.0]", "[2.0.0 1.0.0]", "3 document, 0 metadata"},
		"no document": {broken(http.StatusNotFound), false, true,
			"[2.0.0 1.0.0]", "[2.0.0 1.0.0]", "2 document, 0 metadata"},
		"an overloaded server": {broken(http.StatusServiceUnavailable), false, true, "[]", "[]", "6 document, 0 metadata"},
		"a denied request":     {broken(http.StatusForbidden), false, false, "[]", "[]", "2 document, 0 metadata"},
		"another document":     {page{body: []byte("<html>")}, false, true, "[]", "[]", "2 document, 0 metadata"},
		"a huge document": {page{body: []byte(`{"versions":[]}` + strings.Repeat(" ", 3<<20))}, false, true,
			"[]", "[]", "2 document, 0 metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPulled(t)
			p.rule().MinAge, p.rule().WaitUnknown = week, test.wait
			p.set(timesPage, test.document)
			if test.late {
				p.listVersions(map[string]any{old: nil})
				if got, err := p.lookAt(t, ofTofu); err != nil || got != "[1.0.0]" {
					t.Fatalf("before: got %s, %v", got, err)
				}
				p.on(start.Add(day))
			}
			p.listVersions(map[string]any{old: nil, recent: nil})
			got, err := p.lookAt(t, ofTofu)
			if err != nil || got != test.first {
				t.Errorf("first: got %s, %v, want %s", got, err, test.first)
			}
			p.on(start.Add(7 * day))
			got, err = p.lookAt(t, ofTofu)
			if err != nil || got != test.week {
				t.Errorf("after a week: got %s, %v, want %s", got, err, test.week)
			}
			if got := p.requests(t); got != test.requests {
				t.Errorf("%s were requested, want %s", got, test.requests)
			}
		})
	}
}

// The document is requested only for a minimum age, and only if the origin is the
// public registry itself.
func TestTimesOfAllRequests(t *testing.T) {
	t.Parallel()
	const elsewhere, tofu = "https://elsewhere.example.com/v1/providers/", "https://registry.opentofu.org"
	for name, test := range map[string]struct {
		address  registry.MirrorAddress
		rule     registry.MirrorRule
		upstream string
		want     string
	}{
		"a minimum age":                 {ofTofu, registry.MirrorRule{MinAge: week}, "", "1 document, 0 metadata"},
		"no minimum age":                {ofTofu, registry.MirrorRule{}, "", "0 document, 0 metadata"},
		"another registry":              {inventory, registry.MirrorRule{MinAge: week}, "", "0 document, 2 metadata"},
		"an upstream of the rule":       {ofTofu, registry.MirrorRule{MinAge: week, Upstream: elsewhere}, "", "0 document, 2 metadata"},
		"an upstream of the command":    {ofTofu, registry.MirrorRule{MinAge: week}, elsewhere, "0 document, 2 metadata"},
		"this registry as an upstream":  {ofTofu, registry.MirrorRule{MinAge: week, Upstream: tofu}, "", "0 document, 2 metadata"},
		"another host at this registry": {inventory, registry.MirrorRule{MinAge: week}, tofu, "0 document, 2 metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, s := newOrigin(t, build("1.0.0", ours), build("2.0.0", ours)), newStore(t)
			o.set(timesPage, timesAt(map[string]string{"1.0.0": on(-100), "2.0.0": on(-100)}))
			s.setPolicy(t, test.rule)
			_, err := s.at(o, start).Add(t.Context(), filling.Wanted{Address: test.address, All: true, Upstream: test.upstream})
			if err != nil {
				t.Fatal(err)
			}
			if got := o.requests(t); got != test.want {
				t.Errorf("%s were requested, want %s", got, test.want)
			}
		})
	}
}

// A new version of an old branch is not among the newest ones, but has a time. The
// times of the others are known, so those of the document do not replace them.
func TestPullTimesOfOldBranch(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	p.rule().MinAge = week
	times := map[string]string{}
	list := func() {
		var versions []any
		for v := range times {
			versions = append(versions, map[string]any{"version": v})
		}
		p.edit("versions", versions, versionsPage)
		p.set(timesPage, timesAt(times))
	}
	for i := range 30 {
		times[fmt.Sprintf("2.0.%d", i)] = on(-100)
	}
	list()
	if _, err := p.lookAt(t, ofTofu); err != nil {
		t.Fatal(err)
	}
	p.on(start.Add(2 * day))
	times["1.0.0"] = ""
	for v := range times {
		times[v] = on(1)
	}
	list()
	got, err := p.lookAt(t, ofTofu)
	if err != nil || strings.Contains(got, "1.0.0") || strings.Count(got, "2.0.") != 30 {
		t.Errorf("got %s, %v", got, err)
	}
	if got := p.requests(t); got != "2 document, 0 metadata" {
		t.Errorf("%s were requested", got)
	}
}

// One request is enough for all versions, and for later runs.
func TestAddTimesOfAll(t *testing.T) {
	t.Parallel()
	o, s := newOrigin(t, build("1.0.0", ours), build("2.0.0", ours), build("3.0.0", ours)), newStore(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: week, WaitUnknown: true})
	times := map[string]string{"1.0.0": on(-100), "2.0.0": on(-3), "3.0.0": on(-1)}
	o.set(timesPage, timesAt(times))
	run := func(now time.Time, constraint, want string) {
		t.Helper()
		results, err := s.at(o, now).Add(t.Context(), filling.Wanted{Address: ofTofu, Constraint: constraint})
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(results); got != want {
			t.Errorf("mirrored %s, want %s", got, want)
		}
		if got := o.requests(t); got != "1 document, 0 metadata" {
			t.Errorf("%s were requested", got)
		}
	}
	run(start, "1.0.0", "1.0.0 [linux_amd64 added]")
	if diff := cmp.Diff(times, s.knownTimes(t, ofTofu)); diff != "" {
		t.Errorf("recorded times: %s", diff)
	}
	run(start.Add(5*day), "", "2.0.0 [linux_amd64 added]")
	run(start.Add(7*day), "", "3.0.0 [linux_amd64 added]")
}

// A run that cannot get the document mirrors nothing whose time can matter. An
// operator can admit the version.
func TestAddTimesOfAllUnavailable(t *testing.T) {
	t.Parallel()
	o, s := newOrigin(t, build("1.0.0", ours), build("2.0.0", ours)), newStore(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: week})
	o.set(timesPage, page{status: http.StatusForbidden})
	_, err := s.at(o, start).Add(t.Context(), filling.Wanted{Address: ofTofu})
	failed(t, "the newest", err, registry.ErrForbidden, "2.0.0", "when it was published",
		"https://api.opentofu.org/registry/", "larder mirror admit")
	s.empty(t, "the newest")
	_, err = s.at(o, start).Add(t.Context(), filling.Wanted{Address: ofTofu, All: true})
	if !errors.Is(err, registry.ErrForbidden) {
		t.Errorf("all: got error %v, want ErrForbidden", err)
	}
	s.empty(t, "all")
	if got := o.requests(t); got != "2 document, 0 metadata" {
		t.Errorf("%s were requested", got)
	}
	want := filling.Wanted{Address: ofTofu, Platforms: platforms(t, "linux_amd64")}
	if _, err := s.at(o, start).Admit(t.Context(), want, parseVersion(t, "2.0.0"), "a fix"); err != nil {
		t.Error(err)
	}
}
