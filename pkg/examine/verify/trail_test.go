package verify_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// forget removes the matching entries of the audit trail, and returns how many
// they were.
func (d data) forget(t *testing.T, match func(registry.AuditEntry) bool) (removed int) {
	t.Helper()
	now := time.Now().UTC()
	for _, month := range []time.Time{now.AddDate(0, 0, -1), now} {
		partition := "audit/" + month.Format("2006-01")
		page, err := d.table.Query(t.Context(), catalog.Query{Partition: partition})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			var e registry.AuditEntry
			if err := json.Unmarshal(item.Data, &e); err != nil {
				t.Fatal(err)
			}
			if match(e) {
				d.item(t, partition, item.Sort, nil)
				removed++
			}
		}
	}
	return removed
}

func of(action registry.AuditAction, subject, v string) func(registry.AuditEntry) bool {
	return func(e registry.AuditEntry) bool {
		is := ""
		if e.Version != nil {
			is = e.Version.String()
		}
		return e.Action == action && strings.HasPrefix(e.Subject, subject) && is == v
	}
}

func withdraw(ctx context.Context, d data, a registry.Address, v registry.Version) error {
	w := registry.Withdrawal{At: time.Now(), By: "wim", Reason: "it has a key"}
	_, _, err := d.catalog.Of(a).Withdraw(ctx, v, w, false)
	if err == nil {
		_, err = d.store.(*disk.Store).Remove(ctx, registry.ObjectsOf(a, v))
	}
	return err
}

var keyID = regexp.MustCompile(`\b[0-9A-F]{16}\b`)

// A missing entry of the trail is found by what it recorded, and missing data
// by its entry. A repair adds no entries.
func TestTrail(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const m, p, o = "modules/acme/vpc/aws", "providers/acme/inventory", "mirror/registry.example.com/acme/inventory"
	without := func(action registry.AuditAction, subject, v string) func(*testing.T, data) {
		return func(t *testing.T, d data) {
			if d.forget(t, of(action, subject, v)) == 0 {
				t.Fatal("there is no such entry")
			}
		}
	}
	tests := map[string]struct {
		corrupt func(*testing.T, data)
		want    string
	}{
		"all entries": {func(t *testing.T, d data) {
			d.forget(t, func(registry.AuditEntry) bool { return true })
		}, "audit-missing audit"},
		"entries of a module": {func(t *testing.T, d data) {
			d.forget(t, func(e registry.AuditEntry) bool { return e.Subject == m })
		}, "audit-missing " + m},
		"publish of a provider":     {without("publish", p, "1.0.0"), "audit-missing " + p},
		"mirroring of a platform":   {without("mirror", o, "1.1.0"), "audit-missing " + o},
		"deprecation of a version":  {without("deprecate", p, "1.1.0"), "audit-missing " + p},
		"deprecation of a provider": {without("deprecate", p, ""), "audit-missing " + p},
		"key":                       {without("add-key", "keys/acme/", ""), "audit-missing keys/acme"},
		"withdrawal": {
			func(t *testing.T, d data) {
				if err := withdraw(t.Context(), d, vpc, one); err != nil {
					t.Fatal(err)
				}
				without("withdraw", m, "1.0.0")(t, d)
			},
			"audit-missing " + m,
		},
		"token that nobody created": {
			func(t *testing.T, d data) {
				digest := strings.Repeat("ab", 32)
				d.item(t, "tokens", digest, with([]byte(`{"id":"`+digest[:12]+`","name":"forged","scopes":["read:**"]}`)))
			},
			"audit-missing tokens",
		},
		"withdrawn version whose record came back": {
			func(t *testing.T, d data) {
				before, listed := d.data(t, m, "version/2.0.0-rc.1"), d.data(t, m, "listing")
				entry := d.data(t, "catalog/acme", m)
				withdrawal := registry.Withdrawal{At: time.Now(), By: "wim", Reason: "it has a key"}
				_, _, err := d.catalog.Of(vpc).Withdraw(t.Context(), version("2.0.0-rc.1"), withdrawal, false)
				if err != nil {
					t.Fatal(err)
				}
				d.item(t, m, "version/2.0.0-rc.1", with(before))
				d.item(t, m, "listing", with(listed))
				d.item(t, "catalog/acme", m, with(entry))
			},
			"record " + m + " 2.0.0-rc.1",
		},
		"mirrored platform that is gone": {
			func(t *testing.T, d data) {
				now := time.Now().UTC()
				entry := `{"at":"` + now.Format(time.RFC3339Nano) + `","action":"mirror","subject":"` + o +
					`","version":"1.0.0","detail":"linux_arm64"}`
				key := now.Format("2006-01-02T15:04:05.000000000Z") + "#x"
				d.item(t, "audit/"+now.Format("2006-01"), key, with([]byte(entry)))
			},
			"record " + o + " 1.0.0",
		},
		"key that is gone": {
			func(t *testing.T, d data) {
				if _, err := d.catalog.AddSigningKey(t.Context(), "acme", registry.SigningKey{ID: "00"}); err != nil {
					t.Fatal(err)
				}
				d.item(t, "keys/acme", "00", nil)
			},
			"record keys/acme",
		},
		"deprecation that is gone": {
			func(t *testing.T, d data) {
				if _, err := d.catalog.Modules.Deprecate(t.Context(), vpc, nil, catalog.Deprecation{Message: "x"}); err != nil {
					t.Fatal(err)
				}
				d.item(t, "catalog/acme", m, record(t, func(s *registry.Summary) { s.Deprecated = "" }))
			},
			"record " + m,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := restored(t)
			test.corrupt(t, d)
			plain, quick := func(*verify.Verifier) {}, func(v *verify.Verifier) { v.Quick = true }
			for i, how := range []func(*verify.Verifier){plain, repairing, quick} {
				report := d.verified(t, how)
				if diff := cmp.Diff([]string{test.want}, summary(report)); diff != "" {
					t.Fatalf("%s\n%+v", diff, report.Findings)
				}
				f := report.Findings[0]
				if i == 0 {
					texts.Text(t, keyID.ReplaceAllString(f.Detail+"\n  fix: "+f.Fix+"\n", "KEY"))
				}
				if f.Fix == "" {
					t.Error("the fault has no fix")
				}
				if f.Repaired || report.Faults() != 1 {
					t.Errorf("it is not a fault: %+v", f)
				}
			}
		})
	}
}

// Following the fix of a finding resolves it, and later changes cause no new
// one.
func TestTrailAfterItsAdvice(t *testing.T) {
	t.Parallel()
	const m = "modules/acme/vpc/aws"
	type step = func(context.Context, data) error
	key, err := keys.NewSigningKey("Ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := signing.ParseKey(key.Public, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	addKey := func(ctx context.Context, d data) error { return d.addKey(ctx, key) }
	removeKey := func(ctx context.Context, d data) error {
		return d.catalog.RemoveSigningKey(ctx, "acme", parsed.ID, "ada")
	}
	deprecate := func(v *registry.Version, message string) step {
		return func(ctx context.Context, d data) error {
			_, err := d.catalog.Modules.Deprecate(ctx, vpc, v, catalog.Deprecation{Message: message})
			return err
		}
	}
	tokens := strings.Repeat("ab", 32)
	addToken := func(ctx context.Context, d data) error {
		return d.catalog.AddToken(ctx, tokens, registry.Token{ID: tokens[:12], Name: "ci", Scopes: []string{"read:**"}})
	}
	forgetItem := func(partition, sort string) func(*testing.T, data) {
		return func(t *testing.T, d data) { d.item(t, partition, sort, nil) }
	}
	undeprecate := func(t *testing.T, d data) {
		d.item(t, "catalog/acme", m, record(t, func(s *registry.Summary) { s.Deprecated = "" }))
	}
	tests := map[string]struct {
		before []step
		lose   func(*testing.T, data)
		found  string
		after  []step // none of them causes a finding
	}{
		"key": {
			[]step{addKey}, forgetItem("keys/acme", parsed.ID), "record keys/acme",
			[]step{addKey, removeKey, addKey, removeKey},
		},
		"deprecation, undone": {
			[]step{deprecate(nil, "x")}, undeprecate, "record " + m,
			[]step{deprecate(nil, ""), deprecate(nil, "x"), deprecate(nil, "")},
		},
		"deprecation, again": {
			[]step{deprecate(nil, "x")}, undeprecate, "record " + m,
			[]step{deprecate(nil, "x"), deprecate(nil, "")},
		},
		"token": {[]step{addToken}, forgetItem("tokens", tokens), "", []step{addToken}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := restored(t)
			for _, do := range test.before {
				if err := do(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			test.lose(t, d)
			if diff := cmp.Diff(test.found, strings.Join(summary(d.verified(t)), ", ")); diff != "" {
				t.Fatal(diff)
			}
			for i, do := range test.after {
				if err := do(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				if report := d.verified(t); len(report.Findings) > 0 {
					t.Fatalf("after step %d: %+v", i, report.Findings)
				}
			}
		})
	}
}

// An accepted loss is not a fault any more. A later loss is.
func TestAcceptLoss(t *testing.T) {
	t.Parallel()
	const m = "modules/acme/vpc/aws"
	everything := func(registry.AuditEntry) bool { return true }
	accepting := func(v *verify.Verifier) { v.AcceptLossBy = "ada" }
	d := restored(t)
	token := strings.Repeat("ab", 32)
	err := d.catalog.AddToken(t.Context(), token, registry.Token{ID: token[:12], Name: "ci", Scopes: []string{"read:**"}})
	if err := errors.Join(err, withdraw(t.Context(), d, vpc, one)); err != nil {
		t.Fatal(err)
	}
	d.forget(t, everything)
	if report := d.verified(t, accepting); report.Faults() != 0 || len(report.Findings) != 5 {
		t.Fatalf("accepting: %+v", report.Findings)
	}
	lost := []string{"audit-missing audit (note)"}
	expect := func(when string, more ...string) {
		t.Helper()
		report := d.verified(t)
		if diff := cmp.Diff(append(slices.Clone(lost), more...), summary(report)); diff != "" {
			t.Fatalf("%s: %s\n%+v", when, diff, report.Findings)
		}
	}
	expect("accepted")
	if report := d.verified(t, accepting); len(report.Findings) != 1 {
		t.Fatalf("accepting again: %+v", report.Findings)
	}
	for entry, err := range d.catalog.AuditTrail(t.Context()) {
		if err != nil || entry.By != "ada" || entry.Action != registry.AuditAcceptLoss {
			t.Errorf("the trail has %+v, %v", entry, err)
		}
	}
	// Later changes have their entries, and losing these is a fault.
	_, err = d.catalog.Modules.Deprecate(t.Context(), vpc, nil, catalog.Deprecation{Message: "x", By: "ada"})
	if err := errors.Join(err, d.publishModule(t.Context(), "3.0.0")); err != nil {
		t.Fatal(err)
	}
	expect("with more")
	d.forget(t, of("publish", m, "3.0.0"))
	expect("without a later entry", "audit-missing "+m)
	// Losing the data of an accepted entry is a fault too.
	_, err = d.catalog.Modules.Deprecate(t.Context(), vpc, nil, catalog.Deprecation{By: "ada"})
	if err := errors.Join(err, d.publishModule(t.Context(), "3.1.0")); err != nil {
		t.Fatal(err)
	}
	key := d.provider(t).SigningKey
	d.item(t, "keys/acme", key, nil)
	if found := summary(d.verified(t)); !slices.Contains(found, "record keys/acme") {
		t.Errorf("without a key whose entry was accepted: %v", found)
	}
	d.forget(t, everything)
	if report := d.verified(t); report.Faults() == 0 {
		t.Error("losing the trail again is not a fault")
	}
}

// All versions of a module without an entry are reported in one line.
func TestTrailIsSummarised(t *testing.T) {
	t.Parallel()
	d := restored(t)
	for i := range 20 {
		v := version("7.0.0")
		v.Minor = uint64(i)
		r := registry.ModuleVersion{Version: v, Object: vpc.ArchiveKey(v, "abc"), SHA256: "abc"}
		publish := func(context.Context, protocol.Document) (registry.ModuleVersion, error) { return r, nil }
		if _, _, err := d.catalog.Modules.Publish(t.Context(), vpc, v, "ada", publish); err != nil {
			t.Fatal(err)
		}
	}
	d.forget(t, func(e registry.AuditEntry) bool { return e.Subject == vpc.Path() && e.Version.Major == 7 })
	var missing []verify.Finding
	for _, f := range d.verified(t).Findings {
		if f.Kind == "audit-missing" {
			missing = append(missing, f)
		}
	}
	if len(missing) != 1 {
		t.Fatalf("%d findings: %+v", len(missing), missing)
	}
	if f := missing[0]; !strings.Contains(f.Detail, " 15 ") {
		t.Errorf("the detail is %q", f.Detail)
	}
	if f := missing[0]; len(f.Detail) > 300 {
		t.Errorf("the detail has %d bytes", len(f.Detail))
	}
}

// trailing is a table that calls a function after the audit trail was read.
type trailing struct {
	catalog.Table
	once sync.Once
	do   func()
}

func (h *trailing) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	if q.Partition == "namespaces" {
		h.once.Do(h.do)
	}
	return h.Table.Query(ctx, q)
}

// A change after the trail was read is not a fault.
func TestChangesAfterTheTrailWasRead(t *testing.T) {
	t.Parallel()
	d := restored(t)
	signs := d.provider(t).SigningKey
	other, err := keys.NewSigningKey("Ed25519", 0)
	if err := errors.Join(err, d.addKey(t.Context(), other)); err != nil {
		t.Fatal(err)
	}
	all, err := d.catalog.SigningKeys(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	unused := all[slices.IndexFunc(all, func(k registry.SigningKey) bool { return k.ID != signs })].ID
	table := &trailing{Table: d.table}
	table.do = func() {
		ctx := t.Context()
		_, hidden := d.catalog.Modules.Deprecate(ctx, vpc, &one, catalog.Deprecation{Message: "x", Hide: true, By: "ada"})
		_, shown := d.catalog.Providers.Deprecate(ctx, inventory, nil, catalog.Deprecation{By: "ada"})
		token := registry.Token{ID: strings.Repeat("ab", 6), Name: "ci", Scopes: []string{"read:**"}}
		err := errors.Join(hidden, shown,
			d.publishModule(ctx, "3.0.0"), d.publishProvider(ctx, "3.0.0"), d.mirror(ctx, "3.0.0"),
			withdraw(ctx, d, inventory, one), d.catalog.RemoveSigningKey(ctx, "acme", unused, "ada"),
			d.catalog.AddToken(ctx, strings.Repeat("ab", 32), token))
		if err != nil {
			t.Error(err)
		}
	}
	report := d.verified(t, func(v *verify.Verifier) { v.Catalog = catalog.New(table) })
	if diff := cmp.Diff([]string{}, summary(report)); diff != "" {
		t.Errorf("%s\n%+v", diff, report.Findings)
	}
}

// The first publishes of a registry, which had no trail before, are not faults.
func TestFirstPublishWhileVerifying(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.close() })
	table := &trailing{Table: d.table, do: func() {
		if err := d.fill(t.Context()); err != nil {
			t.Error(err)
		}
	}}
	report := d.verified(t, func(v *verify.Verifier) { v.Catalog = catalog.New(table) })
	if diff := cmp.Diff([]string{}, summary(report)); diff != "" || report.Versions == 0 {
		t.Errorf("%s\n%+v", diff, report)
	}
}

// The audit trail of DynamoDB is read page by page.
func TestTrailOnDynamoDB(t *testing.T) {
	t.Parallel()
	dynamo, err := dynamodbtest.Start(t.Context(), "larder")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	store, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	d := data{store: store}
	d.table = paged{dynamodb.New(awstest.Config(dynamo.URL), "larder")}
	d.catalog = catalog.New(d.table)
	if err := d.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report := d.verified(t); len(report.Findings) > 0 {
		t.Fatalf("%+v", report.Findings)
	}
	d.table = d.table.(paged).Table
	d.forget(t, of("publish", vpc.Path(), "1.1.0"))
	if diff := cmp.Diff([]string{"audit-missing " + vpc.Path()}, summary(d.verified(t))); diff != "" {
		t.Error(diff)
	}
	d.forget(t, func(registry.AuditEntry) bool { return true })
	if diff := cmp.Diff([]string{"audit-missing audit"}, summary(d.verified(t))); diff != "" {
		t.Error(diff)
	}
}

// paged is a table whose pages of the trail have two items.
type paged struct{ catalog.Table }

func (p paged) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	if strings.HasPrefix(q.Partition, "audit/") {
		q.Limit = 2
	}
	return p.Table.Query(ctx, q)
}
