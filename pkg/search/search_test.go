package search_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// find returns the addresses of the modules that match a text, the best first,
// each with the names that match.
func find(text string, modules ...registry.Summary) (addresses []string, matches [][]string, err error) {
	q, err := search.ParseQuery(text)
	if err != nil {
		return nil, nil, err
	}
	var entries []search.Entry
	for _, m := range modules {
		e, err := search.NewEntry(search.Modules, m)
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, e)
	}
	for _, e := range q.Search(entries, func(*search.Entry) bool { return true }) {
		addresses, matches = append(addresses, e.Address), append(matches, q.Matches(e))
	}
	return addresses, matches, nil
}

// ranked are modules that a search for vpc finds, the best first.
var ranked = []registry.Summary{
	{Address: "acme/vpc/aws"},
	{Address: "acme/vpc/google"},
	{Address: "other/vpc/aws", Deprecated: "old"},
	{Address: "acme/vpc-peering/aws"},
	{Address: "acme/my-vpc/aws"},
	{Address: "vpcs/net/aws"},
	{Address: "acme/net/aws", Words: "cidr aws_vpc VPC_id"},
	{Address: "acme/dns/aws", Description: "Names in a VPC"},
}

func TestSearch(t *testing.T) {
	t.Parallel()
	all := slices.Clone(ranked)
	slices.SortFunc(all, func(a, b registry.Summary) int { return strings.Compare(a.Address, b.Address) })
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"each rank", "vpc", []string{
			"acme/vpc/aws", "acme/vpc/google", "other/vpc/aws", "acme/vpc-peering/aws", "acme/my-vpc/aws", "vpcs/net/aws",
			"acme/net/aws", "acme/dns/aws",
		}},
		{"capital letters", "VPC-Peering", []string{"acme/vpc-peering/aws"}},
		{"an address", "acme/vpc/aws", []string{"acme/vpc/aws"}},
		{"a part of an address", "e/vpc/", []string{"acme/vpc/aws", "acme/vpc/google"}},
		{"all words must match", "vpc google", []string{"acme/vpc/google"}},
		{"words in different places", "net cidr", []string{"acme/net/aws"}},
		{"words in another order", "cidr net", []string{"acme/net/aws"}},
		{"part of an input", "pc_i", []string{"acme/net/aws"}},
		{"a description", "names", []string{"acme/dns/aws"}},
		{"nothing", "no-such-thing", nil},
		{"one word that does not match", "vpc no-such-thing", nil},
		{"invalid UTF-8", "\xff", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := find(test.text, all...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The names that match are reported as written, and only some of them.
func TestMatches(t *testing.T) {
	t.Parallel()
	m := registry.Summary{Address: "acme/vpc/aws", Words: "cidr Subnet_ids subnet_a subnet_b subnet_c subnet_d subnet_e"}
	for text, want := range map[string][]string{
		"cidr":                 {"cidr"},
		"SUBNET":               {"Subnet_ids", "subnet_a", "subnet_b", "subnet_c", "subnet_d"},
		"vpc":                  nil,
		"cidr t_ids":           {"cidr", "Subnet_ids"},
		"ids subnet":           {"Subnet_ids"},
		"subnet cidr subnet_a": {"subnet_a"},
	} {
		_, matches, err := find(text, m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]string{want}, matches); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// Mirrored modules and providers share a catalog, and are in separate lists.
func TestMirroredEntries(t *testing.T) {
	t.Parallel()
	table, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	provider := registry.MirrorAddress{Hostname: "example.com", Namespace: "acme", Name: "note"}
	module := provider
	module.System = "aws"
	for _, a := range []registry.MirrorAddress{provider, module} {
		summary, err := json.Marshal(registry.Summary{Address: a.String()})
		if err != nil {
			t.Fatal(err)
		}
		key := catalog.Key{Partition: "catalog/mirror", Sort: a.Path()}
		if err := table.Write(t.Context(), catalog.Change{Key: key, Data: summary}); err != nil {
			t.Fatal(err)
		}
	}
	index := search.New(catalog.New(table), nil)
	for kind, want := range map[search.Kind]string{
		search.Mirrored: provider.Path(), search.MirroredModules: module.Path(),
	} {
		entries, err := index.Entries(t.Context(), kind)
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

func FuzzSearch(f *testing.F) {
	f.Add("vpc aws", "acme/vpc/aws", "cidr subnet_ids", "A network", false)
	f.Add("İ", "acme/vpc/aws", "ﬀ", "\xff", true)
	f.Fuzz(func(t *testing.T, text, address, words, description string, deprecated bool) {
		m := registry.Summary{Address: address, Words: words, Description: description}
		if deprecated {
			m.Deprecated = "old"
		}
		found, matches, err := find(text, m)
		if errors.Is(err, registry.ErrInvalid) {
			if len(text) <= search.MaxQuery && len(strings.Fields(text)) <= 8 {
				t.Errorf("%q is rejected", text)
			}
			return
		}
		if err != nil {
			return // the address is not that of a module
		}
		everywhere := strings.ToLower(strings.Join([]string{address, words, description}, "\n"))
		want := true
		for _, word := range strings.Fields(strings.ToLower(text)) {
			want = want && strings.Contains(everywhere, word)
		}
		// ToLower of a part can differ from that of the whole only at bytes that
		// are not UTF-8.
		if utf8.ValidString(everywhere) && want != (len(found) == 1) {
			t.Errorf("%q in %q: found %t, want %t", text, everywhere, len(found) == 1, want)
		}
		for _, names := range matches {
			if len(names) > search.MaxMatches {
				t.Errorf("%d names match", len(names))
			}
			for _, name := range names {
				if !strings.Contains(words, name) {
					t.Errorf("the name %q is not in the words %q", name, words)
				}
			}
		}
	})
}
