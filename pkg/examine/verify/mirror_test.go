package verify_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/pkg/registry"
)

// unmirrored is a provider of which the mirror has nothing.
var unmirrored = registry.MirrorAddress{
	Hostname: "registry.example.com", Namespace: "acme", Name: "dns",
}

// allowAll is a policy that allows everything.
var allowAll = registry.MirrorPolicy{
	Text: `allow "providers.example.com/*/*" {
  pull     = "open"
  networks = ["10.0.0.0/8", "fd00::/8"]
}
allow "*/*/*" {}
budget { packages_per_day = 7 }
`,
	Rules: []registry.MirrorRule{
		{
			Pattern: "providers.example.com/*/*", Line: 1, Pull: registry.PullOpen,
			Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		},
		{Pattern: "*/*/*", Line: 5},
	},
	Budget: registry.PullBudget{Packages: 7}, SetBy: "ada",
}

// fingerprint is that of a key that an operator trusts.
const fingerprint = "E3E6E43D84CB852EADB0051D0C0AF313E5FD9F80"

// decide makes all decisions about the mirror that the audit trail has: about a
// mirrored provider, and about one of which nothing is mirrored.
func (d data) decide(ctx context.Context) error {
	_, policy := d.catalog.SetMirrorPolicy(ctx, allowAll, "")
	return errors.Join(policy, d.decideAbout(ctx, mirrored), d.decideAbout(ctx, unmirrored))
}

func (d data) decideAbout(ctx context.Context, p registry.MirrorAddress) error {
	at := time.Now().UTC()
	decision := registry.Decision{At: at, By: "ada", Reason: "a security fix"}
	key := originKey("34365D9472D7468F")
	step := func(action registry.AuditAction, v, detail string, edit func(*registry.MirrorOrigin)) error {
		_, err := d.catalog.Mirror.UpdateOrigin(ctx, p,
			func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
				edit(o)
				entry := registry.AuditEntry{By: "ada", Action: action, Detail: detail}
				if v != "" {
					n := version(v)
					entry.Version = &n
				}
				return true, &entry, nil
			})
		return err
	}
	refuse := func(o *registry.MirrorOrigin) { o.Refuse(registry.RefusedVersion{Version: version("9.2.0"), Key: key}) }
	return errors.Join(
		step(registry.AuditAdmit, "9.0.0", "", func(o *registry.MirrorOrigin) { o.Admit(version("9.0.0"), decision) }),
		step(registry.AuditOverrule, "9.1.0", "", func(*registry.MirrorOrigin) {}),
		step(registry.AuditRefuseKey, "9.2.0", "", refuse),
		step(registry.AuditTrustKey, "", "51852D87348FFC4C Acme: announced", func(o *registry.MirrorOrigin) {
			trusted := originKey("51852D87348FFC4C")
			trusted.Trusted = &decision
			o.Trust(trusted)
		}),
		step(registry.AuditTrustKey, "", fingerprint+" Acme", func(o *registry.MirrorOrigin) {
			o.Trust(registry.OriginKey{ID: "0C0AF313E5FD9F80", Fingerprint: fingerprint, SeenAt: at, Trusted: &decision})
		}),
		step(registry.AuditTrustKey, "", "unsigned", func(o *registry.MirrorOrigin) { o.Unsigned = &decision }),
	)
}

// originKey returns the signing key with an ID.
func originKey(id string) registry.OriginKey {
	return registry.OriginKey{ID: id, Fingerprint: strings.Repeat("0", 24) + id}
}

// editOrigin changes the stored data about an origin, without an audit entry.
func (d data) editOrigin(t *testing.T, p registry.MirrorAddress, edit func(*registry.MirrorOrigin)) {
	t.Helper()
	if _, err := d.catalog.Mirror.UpdateOrigin(t.Context(), p,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			edit(o)
			return true, nil, nil
		}); err != nil {
		t.Fatal(err)
	}
}

// Decisions about versions that the mirror does not have are not lost versions.
func TestMirrorDecisions(t *testing.T) {
	t.Parallel()
	d := restored(t)
	if err := d.decide(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, how := range map[string]func(*verify.Verifier){"plain": func(*verify.Verifier) {}, "repair": repairing} {
		report := d.verified(t, how)
		if diff := cmp.Diff([]string{}, summary(report)); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%+v", name, diff, report.Findings)
		}
		if report.Mirrored != 1 {
			t.Errorf("%s: %d mirrored providers, want 1", name, report.Mirrored)
		}
	}
}

// A policy or an origin that cannot be read is a fault, and so is a decision
// without its entry in the audit trail. A repair changes neither.
func TestMirrorCorruptions(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const here, other = "mirror/registry.example.com/acme/inventory", "mirror/registry.example.com/acme/dns"
	item := func(partition, sort, text string) func(*testing.T, data) {
		return func(t *testing.T, d data) { d.item(t, partition, sort, with([]byte(text))) }
	}
	without := func(action registry.AuditAction, subject, v string) func(*testing.T, data) {
		return func(t *testing.T, d data) {
			if d.forget(t, of(action, subject, v)) == 0 {
				t.Fatal("there is no such entry")
			}
		}
	}
	gone := func(partition, sort string) func(*testing.T, data) {
		return func(t *testing.T, d data) { d.item(t, partition, sort, nil) }
	}
	origin := func(p registry.MirrorAddress, change func([]byte) []byte) func(*testing.T, data) {
		return func(t *testing.T, d data) { d.item(t, "mirror/providers", p.String(), change) }
	}
	// damaged is the item of a provider of which only the data about the origin cannot
	// be read.
	damaged := func(p registry.MirrorAddress) func([]byte) []byte {
		return with([]byte(`{"address":"` + p.String() + `","origin":"eA=="}`))
	}
	edited := func(edit func(*registry.MirrorOrigin)) func(*testing.T, data) {
		return func(t *testing.T, d data) { d.editOrigin(t, unmirrored, edit) }
	}
	policy := func(edit func(*registry.MirrorPolicy)) func(*testing.T, data) {
		return func(t *testing.T, d data) { d.item(t, "policy", "mirror", record(t, edit)) }
	}
	for name, test := range map[string]struct {
		corrupt func(*testing.T, data)
		want    string
	}{
		"policy":                               {item("policy", "mirror", "{"), "record policy/mirror"},
		"origin":                               {origin(mirrored, damaged(mirrored)), "record " + here},
		"origin of nothing":                    {origin(unmirrored, damaged(unmirrored)), "record " + other},
		"provider":                             {origin(mirrored, with([]byte("x"))), "record " + here},
		"provider of nothing":                  {origin(unmirrored, with([]byte("x"))), "record " + other},
		"entry of the policy":                  {without("set-policy", "policy/mirror", ""), "audit-missing policy/mirror"},
		"entry of an admission":                {without("admit", here, "9.0.0"), "audit-missing " + here},
		"policy that is gone":                  {gone("policy", "mirror"), "record policy/mirror"},
		"origin that is gone":                  {origin(mirrored, nil), "record " + here},
		"origin of nothing, gone":              {origin(unmirrored, nil), "record " + other},
		"admission that is gone":               {edited(func(o *registry.MirrorOrigin) { o.Versions = nil }), "record " + other},
		"key that is gone":                     {edited(func(o *registry.MirrorOrigin) { o.Keys = o.Keys[:0] }), "record " + other},
		"rules that are not those of the text": {policy(func(p *registry.MirrorPolicy) { p.Rules[0].Line = 2 }), "record policy/mirror"},
		"network that the text lacks":          {policy(func(p *registry.MirrorPolicy) { p.Rules[0].Networks = p.Rules[0].Networks[:1] }), "record policy/mirror"},
		"budget that is not that of the text":  {policy(func(p *registry.MirrorPolicy) { p.Budget.Bytes = 1 }), "record policy/mirror"},
		"text that is not a policy":            {policy(func(p *registry.MirrorPolicy) { p.Text = "any" }), "record policy/mirror"},
		"entry of a refusal":                   {without("refuse-key", here, "9.2.0"), "audit-missing " + here},
		"entry of the trust in a key":          {without("trust-key", other, ""), "audit-missing " + other},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := restored(t)
			if err := d.decide(t.Context()); err != nil {
				t.Fatal(err)
			}
			test.corrupt(t, d)
			for _, how := range []func(*verify.Verifier){repairing, func(*verify.Verifier) {}} {
				report := d.verified(t, how)
				if diff := cmp.Diff([]string{test.want}, summary(report)); diff != "" {
					t.Fatalf("(-want +got):\n%s\n%+v", diff, report.Findings)
				}
				if report.Faults() != 1 {
					t.Errorf("it is not a fault: %+v", report.Findings[0])
				}
			}
			f := d.verified(t).Findings[0]
			texts.Text(t, f.Detail+"\n  fix: "+f.Fix+"\n")
			if f.Kind != verify.AuditMissing {
				return
			}
			d.verified(t, func(v *verify.Verifier) { v.AcceptLossBy = "ada" })
			if report := d.verified(t); report.Faults() > 0 {
				t.Errorf("after the loss is accepted: %+v", report.Findings)
			}
		})
	}
}

// A lost key is not a fault if the mirror has recorded it again. A lost
// admission is not a fault if the version is mirrored.
func TestMirrorDecidedAgain(t *testing.T) {
	t.Parallel()
	d := restored(t)
	if err := d.decide(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.item(t, "mirror/providers", mirrored.String(), nil)
	d.editOrigin(t, mirrored, func(o *registry.MirrorOrigin) {
		o.Trust(originKey("51852D87348FFC4C"))
		o.Trust(registry.OriginKey{ID: "0C0AF313E5FD9F80", Fingerprint: fingerprint})
	})
	if diff := cmp.Diff([]string{"record " + mirrored.Path()}, summary(d.verified(t))); diff != "" {
		t.Errorf("without the admission (-want +got):\n%s", diff)
	}
	if err := d.mirror(t.Context(), "9.0.0"); err != nil {
		t.Fatal(err)
	}
	if report := d.verified(t); report.Faults() > 0 {
		t.Errorf("after the version is mirrored: %+v", report.Findings)
	}
}

// The first key of an origin needs no decision, but without it there would be no
// refusal of another.
func TestMirrorFirstKeyGone(t *testing.T) {
	t.Parallel()
	d := restored(t)
	v := version("9.2.0")
	if _, err := d.catalog.Mirror.UpdateOrigin(t.Context(), unmirrored,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			o.Trust(originKey("51852D87348FFC4C"))
			return true, &registry.AuditEntry{By: "ada", Action: registry.AuditRefuseKey, Version: &v}, nil
		}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{}, summary(d.verified(t))); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	d.item(t, "mirror/providers", unmirrored.String(), nil)
	if diff := cmp.Diff([]string{"record " + unmirrored.Path()}, summary(d.verified(t))); diff != "" {
		t.Errorf("without the key (-want +got):\n%s", diff)
	}
}

// Without any audit trail, the finding counts stored versions only.
func TestMirrorWithoutTrail(t *testing.T) {
	t.Parallel()
	d := restored(t)
	before := restored(t)
	if err := d.decide(t.Context()); err != nil {
		t.Fatal(err)
	}
	var details []string
	for _, d := range []data{before, d} {
		d.forget(t, func(registry.AuditEntry) bool { return true })
		report := d.verified(t)
		if diff := cmp.Diff([]string{"audit-missing audit"}, summary(report)); diff != "" {
			t.Fatalf("(-want +got):\n%s\n%+v", diff, report.Findings)
		}
		details = append(details, report.Findings[0].Detail)
	}
	if diff := cmp.Diff(details[0], details[1]); diff != "" {
		t.Errorf("(-without decisions +with):\n%s", diff)
	}
}
