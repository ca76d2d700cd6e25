package search_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// module is a module of a test's catalog.
type module struct {
	registry.Summary
	registry.Contents
}

// shelf is a catalog whose modules can be replaced.
type shelf struct {
	table catalog.Table
	now   time.Time
	index *search.Index
}

func newShelf(t testing.TB, modules ...module) *shelf {
	t.Helper()
	table, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	s := &shelf{table: table, now: time.Now()}
	s.index = search.New(catalog.New(table), catalog.New(table), func() time.Time { return s.now })
	for _, m := range modules {
		s.put(t, m)
	}
	return s
}

func (s *shelf) put(t testing.TB, m module) {
	t.Helper()
	namespace, _, _ := strings.Cut(m.Address, "/")
	if !m.IsEmpty() {
		data := m.Encode()
		m.Summary.Contents = fmt.Sprintf("%x", len(m.Inputs)) + m.Folders
		s.write(t, "catalog/"+namespace, "contents/modules/"+m.Address, data)
	}
	data, err := json.Marshal(m.Summary)
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, "catalog/"+namespace, "modules/"+m.Address, data)
	s.write(t, "namespaces", namespace, []byte("{}"))
}

func (s *shelf) write(t testing.TB, partition, sort string, data []byte) {
	t.Helper()
	key := catalog.Key{Partition: partition, Sort: sort}
	item, err := s.table.Get(t.Context(), key)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		t.Fatal(err)
	}
	if err := s.table.Write(t.Context(), catalog.Change{Key: key, Revision: item.Revision, Data: data}); err != nil {
		t.Fatal(err)
	}
}

// find returns the results of a search as a caller sees them who may read what
// visible accepts.
func (s *shelf) find(t testing.TB, text string, visible func(*search.Entry) bool) (search.Found, []string) {
	t.Helper()
	q, err := search.ParseQuery(text, "larder.example.com")
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.index.Search(t.Context(), q, visible, search.Modules)
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, e := range found.Entries {
		addresses = append(addresses, e.Address)
	}
	return found, addresses
}

func everything(*search.Entry) bool { return true }

func inputs(names string) registry.Contents {
	return registry.Contents{Names: registry.Names{Inputs: names}}
}

// small is a catalog in which every kind of match is once.
func small() []module {
	of := func(address, description string, c registry.Contents) module {
		return module{registry.Summary{Address: address, Description: description}, c}
	}
	old := of("other/vpc/aws", "", registry.Contents{})
	old.Deprecated = "old"
	return []module{
		of("acme/vpc/aws", "", registry.Contents{}), of("acme/vpc/google", "", registry.Contents{}), old,
		of("acme/vpc-peering/aws", "", registry.Contents{}),
		of("acme/dns/aws", "Names in a VPC", registry.Contents{}),
		of("acme/net/aws", "", registry.Contents{
			Names:    registry.Names{Inputs: "cidr VPC_id", Readme: "gateway"},
			Requires: []registry.Use{{Source: "hashicorp/random"}},
		}),
		of("acme/s3-bucket/aws", "Storage for objects", registry.Contents{Names: registry.Names{
			Resources: "aws_s3_bucket", Folders: "modules/notification",
		}}),
		of("acme/logs/aws", "", inputs("s3_bucket s3_bucket_name")),
		of("acme/alb/aws", "Application load balancers", inputs("security_groups")),
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	s := newShelf(t, small()...)
	bucket := []string{"acme/s3-bucket/aws", "acme/logs/aws"}
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"name, then description, then input", "vpc", []string{
			"acme/vpc/aws", "acme/vpc/google", "other/vpc/aws", "acme/vpc-peering/aws", "acme/dns/aws", "acme/net/aws",
		}},
		{"a name with a hyphen", "s3-bucket", bucket},
		{"with an underscore", "s3_bucket", bucket},
		{"with a space", "s3 bucket", bucket},
		{"in quotes", "'s3-bucket'", bucket},
		{"with a comma", "s3-bucket,", bucket},
		{"without the hyphen", "s3bucket", []string{"acme/s3-bucket/aws"}},
		{"a resource type", "aws_s3_bucket", []string{"acme/s3-bucket/aws", "acme/logs/aws"}},
		{"a submodule", "notification", []string{"acme/s3-bucket/aws"}},
		{"a provider", "hashicorp/random", []string{"acme/net/aws"}},
		{"a word of a README", "gateway", []string{"acme/net/aws"}},
		{"capital letters", "VPC-Peering", []string{"acme/vpc-peering/aws"}},
		{"an address", "acme/vpc/aws", []string{"acme/vpc/aws", "acme/vpc-peering/aws", "acme/dns/aws", "acme/net/aws"}},
		{"a source of this registry", "larder.example.com/acme/alb/aws", []string{"acme/alb/aws"}},
		{"a folder of a source", "larder.example.com/acme/s3-bucket/aws//modules/x", bucket},
		{"with a version", "acme/alb/aws 4.1.0", []string{"acme/alb/aws"}},
		{"with a tag", "acme/alb/aws v4.1.0,", []string{"acme/alb/aws"}},
		{"with a constraint", "acme/alb/aws: ~> 4.1", []string{"acme/alb/aws"}},
		{"with a version after @", "acme/alb/aws@4.1.0", []string{"acme/alb/aws"}},
		{"with a version as a folder", "larder.example.com/acme/alb/aws/4.1.0-rc.1", []string{"acme/alb/aws"}},
		{"a version without an address", "alb 4.1.0", nil},
		{"a number is no version", "acme/alb/aws 4", nil},
		{"a URL", "https://larder.example.com/acme/alb/aws?version=1.0.0", []string{"acme/alb/aws"}},
		{"a source with a port", "larder.example.com:8443/acme/alb/aws", []string{"acme/alb/aws"}},
		{"a source of another registry", "app.example.net/acme/alb/aws", []string{"acme/alb/aws"}},
		{"a repository", "terraform-aws-alb", []string{"acme/alb/aws"}},
		{"the URL of a repository", "git::https://github.com/org/terraform-aws-alb.git?ref=v1", []string{"acme/alb/aws"}},
		{"the name of a repository", "terraform-aws-alb.git", []string{"acme/alb/aws"}},
		{"a repository over SSH", "git@github.com:org/terraform-aws-alb.git//modules/x", []string{"acme/alb/aws"}},
		{"two words as one", "loadbalancer", []string{"acme/alb/aws"}},
		{"all words must match", "vpc google", []string{"acme/vpc/google"}},
		{"common words are not needed", "an input for the cidr", nil},
		{"only common words of a description", "names in a vpc", []string{"acme/dns/aws"}},
		{"the beginning of a word", "notif", []string{"acme/s3-bucket/aws"}},
		{"a part of a word", "tificat", []string{"acme/s3-bucket/aws"}},
		{"nothing", "no-such-thing", nil},
		{"one word that does not match", "vpc no-such-thing", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found, got := s.find(t, test.text, everything)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if found.Corrected != "" {
				t.Errorf("it is corrected to %q", found.Corrected)
			}
		})
	}
}

// An address is before everything else, and then its name. Something deprecated is
// last among those that are the query as much as it is.
func TestAddressesFirst(t *testing.T) {
	t.Parallel()
	of := func(address, deprecated string) module {
		c := registry.Contents{Requires: []registry.Use{{Source: "hashicorp/aws"}, {Source: "acme/vpc"}}}
		c.Inputs = strings.Repeat("acme_vpc hashicorp_aws vpc ", 3)
		s := registry.Summary{Address: address, Deprecated: deprecated, Description: "hashicorp/aws acme/vpc"}
		s.Latest = registry.Version{Major: 1}
		return module{s, c}
	}
	const first, second = "registry.example.net/hashicorp/aws", "registry.example.org/hashicorp/aws"
	s := newShelf(
		t, of("acme/vpc/aws", ""), of("acme/vpc/google", "old"), of("acme/vpc-peering/aws", ""), of("beta/acme-vpc/aws", ""),
		of("beta/vpc/aws", "old"), of("acme/hashicorp-aws-tools/aws", ""),
	)
	s.write(t, "usage/totals", "modules/acme/vpc-peering/aws", []byte(`{"callers": {"": {"count": 300}}}`))
	for _, address := range []string{first, second} {
		s.write(t, "catalog/mirror", "mirror/"+address, fmt.Appendf(nil, `{"address": %q, "latest": "6.20.2"}`, address))
	}
	for text, want := range map[string][]string{
		"hashicorp/aws":          {first, second},
		"hashicorp/aws 6.20.2":   {first, second},
		first:                    {first, second},
		second:                   {second, first},
		second + " v6.20.2":      {second, first},
		"acme/vpc":               {"acme/vpc/aws", "acme/vpc/google", "beta/acme-vpc/aws", "acme/vpc-peering/aws"},
		"acme/vpc/aws":           {"acme/vpc/aws"},
		"acme/vpc/google@1.0.0":  {"acme/vpc/google"},
		"vpc/aws":                {"acme/vpc/aws", "beta/vpc/aws"},
		"vpc":                    {"acme/vpc/aws", "acme/vpc/google", "beta/vpc/aws", "acme/vpc-peering/aws"},
		"example.com/Acme/VPC//": {"acme/vpc/aws", "acme/vpc/google"},
	} {
		q, err := search.ParseQuery(text, "larder.example.com")
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.index.Search(t.Context(), q, everything, search.Modules, search.Mirrored)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range found.Entries[:min(len(want), len(found.Entries))] {
			got = append(got, e.Address)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// Of modules that match as well, the one with more downloads is first, and then
// the newer one.
func TestTies(t *testing.T) {
	t.Parallel()
	of := func(address string, at time.Time) module {
		return module{Summary: registry.Summary{Address: address, PublishedAt: at}}
	}
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newShelf(t, of("acme/vpc/aws", day), of("beta/vpc/aws", day.Add(time.Hour)), of("gamma/vpc/aws", day))
	s.write(t, "usage/totals", "modules/gamma/vpc/aws", []byte(`{"callers": {"": {"count": 3}}}`))
	_, got := s.find(t, "vpc", everything)
	if diff := cmp.Diff([]string{"gamma/vpc/aws", "beta/vpc/aws", "acme/vpc/aws"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The order of results does not depend on what a caller may not read.
func TestOrderRevealsNothing(t *testing.T) {
	t.Parallel()
	visible := []module{
		{registry.Summary{Address: "acme/alpha/aws"}, inputs("beta")},
		{registry.Summary{Address: "acme/x/aws", Description: "alpha beta"}, registry.Contents{}},
		{registry.Summary{Address: "acme/beta-a/aws"}, registry.Contents{Names: registry.Names{Readme: "alpha"}}},
	}
	for i := range 6 {
		visible = append(visible, module{registry.Summary{Address: fmt.Sprintf("acme/y%d/aws", i)}, inputs("alpha")})
	}
	order := func(hidden int) []string {
		s := newShelf(t, visible...)
		for i := range hidden {
			s.put(t, module{Summary: registry.Summary{Address: fmt.Sprintf("other/m%d/aws", i)}})
		}
		found, addresses := s.find(t, "alpha beta", func(e *search.Entry) bool { return strings.HasPrefix(e.Address, "acme/") })
		if found.Left+found.Waiting > 0 {
			t.Errorf("%d names and %d modules are missing", found.Left, found.Waiting)
		}
		return addresses
	}
	want := order(0)
	for _, hidden := range []int{5, 50, 500} {
		if diff := cmp.Diff(want, order(hidden)); diff != "" {
			t.Errorf("with %d hidden modules (-without +with):\n%s", hidden, diff)
		}
	}
}

// One edit is forgiven if a word is nowhere. Nothing that a caller may not read
// corrects anything.
func TestCorrected(t *testing.T) {
	t.Parallel()
	s := newShelf(t, small()...)
	for text, want := range map[string]string{
		"securty":          "security",
		"securiyt groups":  "security groups",
		"notificationn":    "notification",
		"peeering":         "peering",
		"balancerz":        "balancers",
		"securty peering":  "", // no module has both
		"secrty":           "", // two edits
		"vcp":              "", // too short
		"securty nowhere1": "",
	} {
		found, addresses := s.find(t, text, everything)
		if found.Corrected != want || (want != "") != (len(addresses) > 0) {
			t.Errorf("%s: corrected to %q with %v, want %q", text, found.Corrected, addresses, want)
		}
		hidden, _ := s.find(t, text, func(e *search.Entry) bool { return e.Address == "acme/vpc/aws" })
		if hidden.Corrected != "" {
			t.Errorf("%s: without scopes it is corrected to %q", text, hidden.Corrected)
		}
	}
}

// A search finds changes at most a minute later, and nothing that was removed.
func TestChanges(t *testing.T) {
	t.Parallel()
	s := newShelf(t, small()...)
	has := func(text string, want ...string) {
		t.Helper()
		if _, got := s.find(t, text, everything); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	has("cidr", "acme/net/aws")
	changed := small()[5]
	changed.Inputs = "prefix_length"
	s.put(t, changed)
	added := module{registry.Summary{Address: "acme/new/aws"}, inputs("fresh_input")}
	s.put(t, added)
	unlisted := small()[8].Summary
	unlisted.Unlisted = true
	s.put(t, module{Summary: unlisted})
	has("cidr", "acme/net/aws")
	s.now = s.now.Add(time.Minute)
	has("cidr")
	has("prefix_length", "acme/net/aws")
	has("fresh", "acme/new/aws")
	has("balancers")
	has("hashicorp random", "acme/net/aws")
}

// The names that match are reported as written, and only some of them.
func TestMatches(t *testing.T) {
	t.Parallel()
	s := newShelf(t, module{
		registry.Summary{Address: "acme/vpc/aws"}, inputs("cidr Subnet_ids subnet_a subnet_b subnet_c subnet_d subnet_e"),
	})
	for text, want := range map[string][]string{
		"cidr":                 {"cidr"},
		"SUBNET":               {"subnet_a", "subnet_b", "subnet_c", "subnet_d", "subnet_e"},
		"vpc":                  nil,
		"cidr ids":             {"cidr", "Subnet_ids"},
		"ids subnet":           {"Subnet_ids"},
		"subnet_a":             {"subnet_a"},
		"subnet cidr subnet_a": {"subnet_a"},
	} {
		found, _ := s.find(t, text, everything)
		for _, e := range found.Entries {
			if diff := cmp.Diff(want, found.Matches(t.Context(), e)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", text, diff)
			}
		}
	}
}

// Mirrored modules and providers share a catalog, and are in separate lists.
func TestMirroredEntries(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	provider := registry.MirrorAddress{Hostname: "example.com", Namespace: "acme", Name: "note"}
	module := provider
	module.System = "aws"
	for _, a := range []registry.MirrorAddress{provider, module} {
		summary, err := json.Marshal(registry.Summary{Address: a.String()})
		if err != nil {
			t.Fatal(err)
		}
		s.write(t, "catalog/mirror", a.Path(), summary)
	}
	for kind, want := range map[search.Kind]string{
		search.Mirrored: provider.Path(), search.MirroredModules: module.Path(),
	} {
		entries, err := s.index.Entries(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, e := range entries {
			paths = append(paths, e.Path())
		}
		if diff := cmp.Diff([]string{want}, paths); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// An index has a bounded size, whatever the names and uses are. It counts what
// it leaves out.
func TestBoundedMemory(t *testing.T) { // not parallel: it measures memory
	const limit = 4 << 20
	before := debug.SetMemoryLimit(4 * limit)
	s := newShelf(t)
	debug.SetMemoryLimit(before)
	for i := range 80 {
		var names strings.Builder
		var calls []registry.Use
		for n := range 4000 {
			fmt.Fprintf(&names, "n%dx%d ", i, n)
			if i < 2 {
				calls = append(calls, use(fmt.Sprintf("example.com/acme/m%dx%05d/aws", i, n), "", 1))
			}
		}
		c := registry.Contents{Names: registry.Names{Inputs: names.String()}, Calls: calls}
		s.put(t, module{registry.Summary{Address: fmt.Sprintf("acme/m%02d/aws", i)}, c})
	}
	var was, is runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&was)
	found, _ := s.find(t, "n0x1", everything)
	runtime.GC()
	runtime.ReadMemStats(&is)
	if found.Left == 0 {
		t.Error("no names are left out")
	}
	if grown := int(is.HeapAlloc) - int(was.HeapAlloc); grown > 2*limit {
		t.Errorf("the index has %d bytes, with a limit of %d", grown, limit)
	}
	a := registry.Module{Namespace: "acme", Name: "m1x00001", System: "aws"}
	dependents, err := s.index.Dependents(t.Context(), a, "example.com", everything)
	if err != nil {
		t.Fatal(err)
	}
	if len(dependents.Entries)+dependents.Left == 0 {
		t.Error("a caller is neither found nor counted")
	}
	runtime.KeepAlive(s)
}

// A full index begins again if it has removed modules. Then it follows the other kinds
// too.
func TestBeginsAgain(t *testing.T) { // not parallel: it limits memory
	before := debug.SetMemoryLimit(4 << 17)
	s := newShelf(t)
	debug.SetMemoryLimit(before)
	s.write(t, "namespaces", "acme", []byte("{}"))
	s.write(t, "catalog/acme", "providers/acme/inventory", []byte(`{"address": "acme/inventory", "latest": "1.0.0"}`))
	q, err := search.ParseQuery("inventory", "")
	if err != nil {
		t.Fatal(err)
	}
	providers := func() int {
		found, err := s.index.Search(t.Context(), q, everything, search.Providers)
		if err != nil {
			t.Fatal(err)
		}
		return len(found.Entries)
	}
	if n := providers(); n != 1 {
		t.Errorf("%d providers are found at first, want 1", n)
	}
	change := func(i int) {
		var names strings.Builder
		for n := range 400 + i {
			fmt.Fprintf(&names, "v%dx%d ", i, n)
		}
		s.put(t, module{registry.Summary{Address: "acme/m/aws"}, inputs(names.String())})
	}
	found := func(i int) {
		found, addresses := s.find(t, fmt.Sprintf("v%dx1", i), everything)
		if len(addresses) != 1 {
			t.Errorf("change %d: a name of the module is not found, and %d are left out", i, found.Left)
		}
	}
	for i := range 4 {
		change(2 * i)
		s.now = s.now.Add(time.Minute)
		if _, err := s.index.Entries(t.Context(), search.Modules); err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(40 * time.Second)
		if n := providers(); n != 1 {
			t.Errorf("change %d: %d providers are found before it, want 1", i, n)
		}
		found(2 * i)
		change(2*i + 1)
		s.now = s.now.Add(20 * time.Second) // the providers are still cached
		found(2*i + 1)
		if n := providers(); n != 1 {
			t.Errorf("change %d: %d providers are found after it, want 1", i, n)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add("vpc aws")
	f.Add("https://larder.example.com/acme/label/null//modules/x?ref=v1")
	f.Add("İ terraform-aws-vpc :: // ://")
	f.Fuzz(func(t *testing.T, text string) {
		q, err := search.ParseQuery(text, "larder.example.com")
		if errors.Is(err, registry.ErrInvalid) {
			if len(text) <= search.MaxQuery && len(strings.Fields(text)) <= 8 {
				t.Errorf("%q is rejected", text)
			}
			return
		}
		again, err := search.ParseQuery(q.String(), "larder.example.com")
		if err == nil && len(strings.Fields(q.String())) <= 8 && again.String() != q.String() {
			t.Errorf("%q is %q, and that is %q", text, q, again)
		}
	})
}

// BenchmarkSearch searches catalogs of several sizes, whose modules have 174
// names on average. It reports the time of the first search, and the memory of
// a module.
func BenchmarkSearch(b *testing.B) {
	for _, count := range []int{1_000, 20_000, 100_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			s := large(b, count)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			begin := time.Now()
			found, addresses := s.find(b, "subnet gateway", everything)
			for found.Waiting > 0 {
				found, addresses = s.find(b, "subnet gateway", everything)
			}
			if len(addresses) == 0 || found.Left > 0 {
				b.Fatalf("%d results, %d names are not indexed", len(addresses), found.Left)
			}
			first := time.Since(begin)
			runtime.GC()
			runtime.ReadMemStats(&after)
			for b.Loop() {
				s.find(b, "subnet gateway", everything)
			}
			b.ReportMetric(float64(first.Milliseconds()), "ms/fill")
			memory := float64(after.HeapAlloc-before.HeapAlloc) / float64(count)
			b.ReportMetric(memory, "B/module")
			if memory > 2000 {
				b.Errorf("a cached module takes %.0f bytes of memory, more than 2,000", memory)
			}
		})
	}
}

// large returns a catalog of many modules in 20 namespaces, of which 1,000 have
// different names.
func large(b *testing.B, count int) *shelf {
	b.Helper()
	s := newShelf(b)
	parts := strings.Fields("vpc subnet gateway route table private public zone id name arn policy role cluster node " +
		"version enable create tags kms key bucket log flow instance type size min max count group security rule " +
		"endpoint dns record cache engine database user password secret timeout retention backup window")
	var contents [1000][]byte
	for i := range contents {
		var names [174]string
		for n := range names {
			// Small prime factors give each module its own mix.
			names[n] = parts[(i+n*7)%len(parts)] + "_" + parts[(i*3+n*n)%len(parts)]
			if n%4 == 0 {
				names[n] += fmt.Sprintf("_%d", i)
			}
		}
		c := registry.Contents{
			Names:    registry.Names{Inputs: strings.Join(names[:110], " "), Outputs: strings.Join(names[110:], " ")},
			Requires: []registry.Use{{Source: "hashicorp/aws", Constraint: ">= 6.0"}},
		}
		contents[i] = c.Encode()
	}
	var changes []catalog.Change
	for i := range count {
		namespace, address := fmt.Sprintf("team-%d", i%20), fmt.Sprintf("team-%d/module-%05d/aws", i%20, i)
		changes = append(changes, catalog.Change{
			Key:  catalog.Key{Partition: "catalog/" + namespace, Sort: "modules/" + address},
			Data: fmt.Appendf(nil, `{"address":%q,"latest":"1.0.0","description":"A module","contents":"%d"}`, address, i),
		}, catalog.Change{
			Key:  catalog.Key{Partition: "catalog/" + namespace, Sort: "contents/modules/" + address},
			Data: contents[i%len(contents)],
		})
		if i < 20 {
			changes = append(changes, catalog.Change{
				Key: catalog.Key{Partition: "namespaces", Sort: namespace}, Data: []byte("{}"),
			})
		}
		if len(changes) > 90 || i == count-1 {
			if err := s.table.Write(b.Context(), changes...); err != nil {
				b.Fatal(err)
			}
			changes = nil
		}
	}
	return s
}
