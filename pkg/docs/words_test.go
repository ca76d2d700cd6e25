package docs_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/docs"
)

// network is the documentation of a module with submodules.
var network = docs.Documentation{
	Root: docs.Folder{
		Inputs:               []docs.Input{{Name: "cidr"}, {Name: "name"}},
		Outputs:              []docs.Output{{Name: "id"}, {Name: "name"}},
		Resources:            []docs.Resource{{Type: "aws_vpc", Name: "a"}, {Type: "aws_vpc", Name: "b"}},
		DataResources:        []docs.Resource{{Type: "aws_region", Name: "c"}},
		EphemeralResources:   []docs.Resource{{Type: "aws_secret", Name: "d"}},
		ProviderDependencies: []docs.ProviderDependency{{Name: "aws", Source: "hashicorp/aws"}},
		Readme:               "read me",
	},
	Submodules: []docs.Folder{
		{Name: "endpoints", Inputs: []docs.Input{{Name: "cidr"}, {Name: "service"}}},
		{Name: "peering", Outputs: []docs.Output{{Name: "été"}}},
	},
	Examples: []docs.Folder{{Name: "complete", Inputs: []docs.Input{{Name: "x"}}}},
}

func TestWords(t *testing.T) {
	t.Parallel()
	odd := docs.Documentation{Root: docs.Folder{
		Inputs: []docs.Input{{Name: ""}, {Name: " "}, {Name: "a b"}, {Name: "c\n"}, {Name: "\xff"}, {Name: "d"}},
	}}
	all := "hashicorp/aws endpoints peering cidr name id aws_vpc aws_region aws_secret service été"
	for _, test := range []struct {
		name  string
		d     docs.Documentation
		limit int
		want  string
	}{
		{"all", network, 1024, all},
		{"exactly all", network, len(all), all},
		{"one byte less", network, len(all) - 1, strings.TrimSuffix(all, " été")},
		{"a shorter name later", network, 16, "hashicorp/aws id"},
		{"no space", network, 0, ""},
		{"negative limit", network, -1, ""},
		{"nothing", docs.Documentation{}, 1024, ""},
		{"names that are not words", odd, 1024, "d"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := docs.Words(test.d, test.limit); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestWordsLimits checks all limits up to the length of all words.
func TestWordsLimits(t *testing.T) {
	t.Parallel()
	all := make(map[string]bool)
	for word := range strings.FieldsSeq(docs.Words(network, 1024)) {
		all[word] = true
	}
	for limit := range 100 {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			words := docs.Words(network, limit)
			if len(words) > limit {
				t.Errorf("got %d bytes, want at most %d", len(words), limit)
			}
			if !utf8.ValidString(words) {
				t.Errorf("%q is not valid UTF-8", words)
			}
			for word := range strings.FieldsSeq(words) {
				if !all[word] {
					t.Errorf("%q is not a whole name", word)
				}
			}
		})
	}
}
