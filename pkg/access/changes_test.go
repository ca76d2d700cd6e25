package access_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each difference of settings is a change. The order of their parts is none.
func TestChanges(t *testing.T) {
	t.Parallel()
	const (
		ci  = `{"issuer": "https://ci.example.com", "audiences": ["a"], "rules": [RULES]}`
		idp = `{"issuer": "https://idp.example.com", "audiences": ["a"], "rules": [RULES]}`
		vpc = `{"claims": {"ref": "refs/tags/*", "repository": "acme/vpc"},
			"scopes": ["publish:modules/acme/vpc/aws", "read:**"]}`
		admin = `{"claims": {"groups": "platform"}, "scopes": ["read:**"]}`
		login = `, "login": {"issuer": "https://idp.example.com", "client": "cli"}`
	)
	settings := func(public, more string, issuers ...string) string {
		return `{"public": [` + public + `], "issuers": [` + strings.Join(issuers, ", ") + `]` + more + `}`
	}
	with := func(issuer string, rules ...string) string {
		return strings.Replace(issuer, "RULES", strings.Join(rules, ", "), 1)
	}
	base := settings(`"modules/acme/*"`, "", with(ci, vpc, admin), with(idp, admin))
	for name, test := range map[string]struct {
		after string
		want  []string
	}{
		"nothing":  {base, nil},
		"an order": {settings(`"modules/acme/*"`, "", with(idp, admin), with(ci, admin, vpc)), nil},
		"a rule less": {settings(`"modules/acme/*"`, "", with(ci, admin), with(idp, admin)), []string{
			"change=rule removed issuer=https://ci.example.com claims=ref=refs/tags/* repository=acme/vpc " +
				"scopes=publish:modules/acme/vpc/aws read:**",
		}},
		"a rule more": {settings(`"modules/acme/*"`, "", with(ci, vpc, admin), with(idp, admin, vpc)), []string{
			"change=rule added issuer=https://idp.example.com claims=ref=refs/tags/* repository=acme/vpc " +
				"scopes=publish:modules/acme/vpc/aws read:**",
		}},
		"an issuer less": {settings(`"modules/acme/*"`, "", with(ci, vpc, admin)), []string{
			"change=issuer removed issuer=https://idp.example.com",
			"change=rule removed issuer=https://idp.example.com claims=groups=platform scopes=read:**",
		}},
		"another audience": {
			settings(`"modules/acme/*"`, "", with(strings.Replace(ci, `"a"`, `"b"`, 1), vpc, admin), with(idp, admin)),
			[]string{"change=issuer changed issuer=https://ci.example.com"},
		},
		"public": {settings(`"modules/acme/vpc"`, "", with(ci, vpc, admin), with(idp, admin)), []string{
			"change=public pattern removed pattern=modules/acme/*", "change=public pattern added pattern=modules/acme/vpc",
		}},
		"a login": {
			settings(`"modules/acme/*"`, login, with(ci, vpc, admin), with(idp, admin)), []string{"change=login changed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range parse(t, test.after).Changes(parse(t, base)) {
				var line []string
				for _, a := range c.Attrs() {
					line = append(line, a.String())
				}
				got = append(got, strings.Join(line, " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// Applied settings decide about the next request, whatever was cached. The keys
// of an issuer that stays are not fetched again.
func TestApply(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	v := visit(t, i)
	token := v.token(t, key, "1")
	v.want(t, 200, path, token)
	v.fetches()
	for _, step := range []struct {
		settings string
		status   int
	}{
		{strings.Replace(anySubject(i.URL), `"**"`, `"somebody"`, 1), 403},
		{anySubject(i.URL), 200},
		{`{}`, 401},
	} {
		v.control.Apply(parse(t, step.settings))
		v.want(t, step.status, path, token)
	}
	if n := v.fetches(); n != 0 {
		t.Errorf("%d fetches", n)
	}
}
