package publish_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// moduleAt returns an address of the form NAMESPACE/NAME/SYSTEM.
func moduleAt(t *testing.T, text string) registry.Module {
	t.Helper()
	m, err := registry.ParseModule(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var errDeclined = errors.New("declined")

// newcomers checks what a new version creates, in a dry run, in a publish that is
// declined, and in one that is confirmed. try publishes, and returns the Newcomer of
// the result. want is nil if there is nothing to confirm.
func (b backend) newcomers(
	t *testing.T, want *protocol.Newcomer,
	try func(confirm func(protocol.Newcomer) error, dryRun bool) (*protocol.Newcomer, error),
) {
	t.Helper()
	var asked []protocol.Newcomer
	answer := errDeclined
	confirm := func(n protocol.Newcomer) error { asked = append(asked, n); return answer }
	planned, err := try(confirm, true)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, planned); diff != "" {
		t.Errorf("dry run (-want +got):\n%s", diff)
	}
	if len(asked) > 0 {
		t.Errorf("a dry run has called Confirm: %v", asked)
	}
	if want != nil {
		stored := b.objects(t)
		if _, err := try(confirm, false); !errors.Is(err, errDeclined) {
			t.Errorf("declined: got error %v", err)
		}
		if more := b.objects(t) - stored; more > 0 {
			t.Errorf("declined: %d objects are stored", more)
		}
		if again, err := try(confirm, true); err != nil || again == nil {
			t.Errorf("declined, and a dry run after that: %v, %v", again, err)
		}
		asked, answer = nil, nil
	}
	created, err := try(confirm, false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, created); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
	var confirmed []protocol.Newcomer
	if want != nil {
		confirmed = append(confirmed, *want)
	}
	if diff := cmp.Diff(confirmed, asked); diff != "" {
		t.Errorf("calls of Confirm (-want +got):\n%s", diff)
	}
	if again, err := try(confirm, false); err != nil || again != nil {
		t.Errorf("published again: %v, %v", again, err)
	}
}

// TestNewcomer checks which new namespaces and modules a publish names.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	namespace := func(name, near string) *protocol.Newcomer {
		return &protocol.Newcomer{NewNamespace: name, Near: near}
	}
	for name, test := range map[string]struct {
		existing  string // addresses
		withdrawn string // one of them
		publish   string
		copied    bool
		want      *protocol.Newcomer
		sentence  string
	}{
		"first of the registry": {publish: "acme/vpc/aws"},
		"existing namespace":    {existing: "acme/vpc/aws", publish: "acme/iam/aws"},
		"existing address":      {existing: "acme/vpc/aws acme/iam/aws", publish: "acme/vpc/aws"},
		"far from others": {
			existing: "acme/vpc/aws", publish: "network/vpc/aws", want: namespace("network", ""),
			sentence: "network is a new namespace",
		},
		"other case": {
			existing: "acme/vpc/aws", publish: "Acme/vpc/aws", want: namespace("Acme", "acme"),
			sentence: "Acme is a new namespace; acme exists",
		},
		"other case before another letter": {
			existing: "acm/vpc/aws acmE/vpc/aws", publish: "acme/vpc/aws", want: namespace("acme", "acmE"),
		},
		"added letter":      {existing: "acme/vpc/aws", publish: "acmee/vpc/aws", want: namespace("acmee", "acme")},
		"first letter":      {existing: "acme/vpc/aws", publish: "xacme/vpc/aws", want: namespace("xacme", "acme")},
		"removed letter":    {existing: "acme/vpc/aws", publish: "cme/vpc/aws", want: namespace("cme", "acme")},
		"changed letter":    {existing: "acme/vpc/aws", publish: "acne/vpc/aws", want: namespace("acne", "acme")},
		"swapped letters":   {existing: "acme/vpc/aws", publish: "amce/vpc/aws", want: namespace("amce", "acme")},
		"two letters":       {existing: "acme/vpc/aws", publish: "acnes/vpc/aws", want: namespace("acnes", "")},
		"case and a letter": {existing: "acme/vpc/aws", publish: "Acmee/vpc/aws", want: namespace("Acmee", "")},
		"copied":            {existing: "acme/vpc/aws", publish: "acmee/vpc/aws", copied: true},
		"name in another case": {
			existing: "acme/hello/aws", publish: "acme/Hello/aws",
			want:     &protocol.Newcomer{NewAddress: "acme/Hello/aws", Near: "acme/hello/aws"},
			sentence: "acme/Hello/aws is new; acme/hello/aws exists",
		},
		"name in another case, copied": {existing: "acme/hello/aws", publish: "acme/Hello/aws", copied: true},
		"both cases exist":             {existing: "acme/hello/aws acme/Hello/aws", publish: "acme/Hello/aws"},
		"name in another case, system": {existing: "acme/hello/aws", publish: "acme/Hello/google"},
		"name in another case, withdrawn": {
			existing: "acme/hello/aws acme/vpc/aws", withdrawn: "acme/hello/aws", publish: "acme/Hello/aws",
		},
		// Finding this one would cost a query.
		"name without capitals": {existing: "acme/Hello/aws", publish: "acme/hello/aws"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded(t)
			all := catalog.New(b.table).Modules
			for _, existing := range strings.Fields(test.existing) {
				m, v := moduleAt(t, existing), module(t, "1.0.0", "").Version
				record := registry.ModuleVersion{Version: v, Object: m.ArchiveKey(v, "5"), SHA256: "5"}
				if _, _, err := put(t.Context(), all, m, record); err != nil {
					t.Fatal(err)
				}
				if existing == test.withdrawn {
					if _, _, err := all.Withdraw(t.Context(), m, v, registry.Withdrawal{By: "somebody"}, false); err != nil {
						t.Fatal(err)
					}
				}
			}
			m := module(t, "2.0.0", "a")
			m.Address = moduleAt(t, test.publish)
			if test.copied {
				m.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/" + test.publish}
			}
			b.newcomers(t, test.want, func(confirm func(protocol.Newcomer) error, dryRun bool) (*protocol.Newcomer, error) {
				p := b.publisher()
				p.Confirm = confirm
				do := p.Module
				if dryRun {
					do = p.CheckModule
				}
				result, err := do(t.Context(), m)
				return result.Newcomer, err
			})
			if test.sentence != "" && test.want.String() != test.sentence {
				t.Errorf("got %q, want %q", test.want, test.sentence)
			}
		})
	}
}

// TestNewcomerProvider checks which new namespaces the publish of a provider names.
// A signing key creates the namespace, so only a registry that has lost the item of
// the namespace has new ones.
func TestNewcomerProvider(t *testing.T) {
	t.Parallel()
	lost := catalog.Change{Key: catalog.Key{Partition: "namespaces", Sort: "acme"}, Revision: 1, Delete: true}
	for name, test := range map[string]struct {
		lost, copied bool
		want         *protocol.Newcomer
	}{
		"namespace with a key": {},
		"lost namespace":       {lost: true, want: &protocol.Newcomer{NewNamespace: "acme", Near: "acmee"}},
		"copied":               {lost: true, copied: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded(t)
			b.addKey(t, signer(t))
			m, v := moduleAt(t, "acmee/vpc/aws"), module(t, "1.0.0", "").Version
			record := registry.ModuleVersion{Version: v, Object: m.ArchiveKey(v, "5"), SHA256: "5"}
			if _, _, err := put(t.Context(), catalog.New(b.table).Modules, m, record); err != nil {
				t.Fatal(err)
			}
			if test.lost {
				if err := b.table.Write(t.Context(), lost); err != nil {
					t.Fatal(err)
				}
			}
			from := newRelease(t, "1.0.0", "linux_amd64").provider()
			if test.copied {
				from.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/acme/inventory"}
			}
			b.newcomers(t, test.want, func(confirm func(protocol.Newcomer) error, dryRun bool) (*protocol.Newcomer, error) {
				p := b.publisher()
				p.Confirm = confirm
				do := p.Provider
				if dryRun {
					do = p.CheckProvider
				}
				result, err := do(t.Context(), from)
				return result.Newcomer, err
			})
		})
	}
}

// TestNewcomerOfRefused checks that nobody confirms a module with a secret.
func TestNewcomerOfRefused(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	if _, err := b.publisher().Module(t.Context(), module(t, "1.0.0", "a")); err != nil {
		t.Fatal(err)
	}
	m := module(t, "1.0.0", registry.FormatToken([32]byte{1}))
	m.Address.Namespace = "acmee"
	p := b.publisher()
	p.Confirm = func(n protocol.Newcomer) error { t.Errorf("Confirm was called: %s", n); return nil }
	for name, do := range map[string]func(context.Context, rules.Module) (rules.ModuleResult, error){
		"publish": p.Module, "dry run": p.CheckModule,
	} {
		if _, err := do(t.Context(), m); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got error %v, want one about a secret", name, err)
		}
	}
}
