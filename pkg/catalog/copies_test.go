package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// The record and the audit trail of a copy name the original, and those of the
// original name the copy. Recording a copy again changes nothing.
func TestCopies(t *testing.T) {
	t.Parallel()
	ctx, vpc := t.Context(), module(t, "acme/vpc/aws")
	dev, prod := catalog.New(open(t)), catalog.New(open(t))
	original := record(t, "1.0.0", "a")
	publish(t, dev, vpc, original)
	copied := original
	copied.CopiedFrom = &registry.CopiedFrom{
		Source: "dev.example.com/acme/vpc/aws", PublishedAt: original.PublishedAt, PublishedBy: original.PublishedBy,
	}
	publish(t, prod, vpc, copied)
	for _, want := range []bool{true, false} {
		changed, err := dev.Modules.AddCopy(ctx, vpc, original.Version, "prod.example.com/acme/vpc/aws", "carol")
		if err != nil {
			t.Fatal(err)
		}
		if changed != want {
			t.Errorf("changed is %v, want %v", changed, want)
		}
	}
	got, err := dev.Modules.Get(ctx, vpc, original.Version)
	if err != nil {
		t.Fatal(err)
	}
	original.CopiedTo = []string{"prod.example.com/acme/vpc/aws"}
	if diff := cmp.Diff(original, got); diff != "" {
		t.Errorf("the record of the original (-want +got):\n%s", diff)
	}
	entries := func(c *catalog.Catalog) (all []string) {
		for e := range each(t, c.AuditTrail(ctx)) {
			all = append(all, fmt.Sprintf("%s %s %s %s: %s", e.By, e.Action, e.Subject, e.Version, e.Detail))
		}
		return all
	}
	if diff := cmp.Diff([]string{
		"somebody publish modules/acme/vpc/aws 1.0.0: ",
		"carol copy modules/acme/vpc/aws 1.0.0: to prod.example.com/acme/vpc/aws",
	}, entries(dev)); diff != "" {
		t.Errorf("the trail of the original (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"somebody publish modules/acme/vpc/aws 1.0.0: copied from dev.example.com/acme/vpc/aws, " +
			"published by somebody at 2026-11-21T01:02:03Z",
	}, entries(prod)); diff != "" {
		t.Errorf("the trail of the copy (-want +got):\n%s", diff)
	}
}

// A record lists the last copies only, so that its size is bounded.
func TestManyCopies(t *testing.T) {
	t.Parallel()
	r := record(t, "1.0.0", "a")
	for i := range registry.MaxCopies + 5 {
		r, _ = r.AddCopy(fmt.Sprintf("host%d.example.com/acme/vpc/aws", i))
	}
	if len(r.CopiedTo) != registry.MaxCopies || r.CopiedTo[0] != "host5.example.com/acme/vpc/aws" {
		t.Errorf("the copies are %v", r.CopiedTo)
	}
}

func TestCopiesOfWithdrawnVersions(t *testing.T) {
	t.Parallel()
	ctx, vpc, c := t.Context(), module(t, "acme/vpc/aws"), catalog.New(open(t))
	r := record(t, "1.0.0", "a")
	publish(t, c, vpc, r)
	if _, _, err := c.Modules.Withdraw(ctx, vpc, r.Version, leaked(), false); err != nil {
		t.Fatal(err)
	}
	_, err := c.Modules.AddCopy(ctx, vpc, r.Version, "prod.example.com/acme/vpc/aws", "carol")
	if !errors.Is(err, registry.ErrWithdrawn) {
		t.Errorf("the error is %v, want ErrWithdrawn", err)
	}
}

func TestCopiedFromCheck(t *testing.T) {
	t.Parallel()
	valid := registry.CopiedFrom{Source: "dev.example.com:8443/acme/vpc/aws", PublishedAt: time.Unix(1, 0)}
	if err := valid.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*registry.CopiedFrom){
		"no source":          func(c *registry.CopiedFrom) { c.Source = "" },
		"no address":         func(c *registry.CopiedFrom) { c.Source = "dev.example.com" },
		"a query":            func(c *registry.CopiedFrom) { c.Source += "?token=1" },
		"a line break":       func(c *registry.CopiedFrom) { c.PublishedBy.Name = "carol\npublish" },
		"an escape sequence": func(c *registry.CopiedFrom) { c.PublishedBy.Subject = "\x1b[2J" },
		"a long source":      func(c *registry.CopiedFrom) { c.Source += strings.Repeat("a", 256) },
		"a long text":        func(c *registry.CopiedFrom) { c.PublishedBy.RunURL = strings.Repeat("a", 2<<10) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := valid
			change(&c)
			if err := c.Check(); !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("the error is %v, want ErrInvalid", err)
			}
		})
	}
}
