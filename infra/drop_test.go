package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/settings"
)

// everything returns settings with everything that a deploy can drop.
func everything() map[string]any {
	return map[string]any{
		"domainName": "registry.example.com", "hostedZoneName": "example.com", "hostedZoneId": "Z0123456789",
		"certificateArn": "arn:aws:acm:eu-central-1:000000000000:certificate/00000000-0000-0000-0000-000000000000",
		"cognito":        map[string]any{"domainPrefix": "acme-larder", "rules": users},
		"access":         twoIssuers(),
		"tableName":      "restored-table", "bucketName": "restored-bucket",
	}
}

func twoIssuers() map[string]any {
	return map[string]any{"public": []any{"modules/acme/hello", "modules/acme/world"}, "issuers": []any{
		map[string]any{"issuer": "https://a.example.com", "audiences": []any{"x", "y"}, "rules": []any{
			map[string]any{"claims": map[string]any{"group": "a"}, "scopes": []any{"read:modules/**",
				"publish:modules/acme/*"}},
			map[string]any{"claims": map[string]any{"group": "b"}, "scopes": []any{"read:providers/**"}},
		}},
		map[string]any{"issuer": "https://b.example.com", "clientIds": []any{"c"}, "rules": users},
	}}
}

// deploy returns a stack in the form of CloudFormation's response after a deploy
// of settings, and the resources that it creates. Synthesis is slow, so call it
// once for the same settings.
func deploy(t *testing.T, s Settings) (*deployed, made) {
	t.Helper()
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir())})
	stack := newStack(app, s, stubs(t))
	text, err := os.ReadFile(filepath.Join(*app.Synth(nil).Directory(), "Larder.template.json"))
	if err != nil {
		t.Fatal(err)
	}
	d := &deployed{Outputs: make(map[string]string)}
	if err := json.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	var tm template
	if err := json.Unmarshal(text, &tm); err != nil {
		t.Fatal(err)
	}
	for name, output := range tm.Outputs {
		d.Outputs[name] = strings.NewReplacer("${", "physical-", "}", "").Replace(templateText(output.Value))
		if name == settings.OutputBucket {
			d.Outputs[name] = strings.ToLower(d.Outputs[name])
		}
	}
	return d, madeBy(stack)
}

func parsed(t *testing.T, given map[string]any) Settings {
	t.Helper()
	s, err := settingsOf(t, given, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drops returns each resource and rule that a deploy would drop, from the
// deployed stack only. It ignores anything that stays, is added, or is widened.
func TestDrops(t *testing.T) {
	all := func(change func(s map[string]any)) map[string]any {
		s := everything()
		change(s)
		return s
	}
	issuers := func(s map[string]any) []any { return s["access"].(map[string]any)["issuers"].([]any) }
	rule := func(s map[string]any) map[string]any {
		return issuers(s)[0].(map[string]any)["rules"].([]any)[0].(map[string]any)
	}
	none := map[string]any{}
	plain, own := deploy(t, defaults(t))
	full, pool := deploy(t, parsed(t, everything()))
	encrypted := &deployed{Resources: plain.Resources, Outputs: maps.Clone(plain.Outputs)}
	encrypted.Outputs[settings.OutputKey] = key
	if own.table == "" || own.bucket == "" || own.pool != "" || pool.table != "" || pool.bucket != "" ||
		pool.pool == "" {
		t.Fatalf("a plain stack makes %+v, one that adopts %+v", own, pool)
	}
	for name, test := range map[string]struct {
		was  *deployed
		now  map[string]any
		want []string // KIND: what
	}{
		"nothing":  {plain, none, nil},
		"the same": {full, everything(), nil},
		"more than before": {plain, all(func(s map[string]any) {
			delete(s, "tableName")
			delete(s, "bucketName")
		}), nil},
		"no record": {full, all(func(s map[string]any) {
			delete(s, "hostedZoneId")
			delete(s, "hostedZoneName")
		}), []string{"record: the DNS record of registry.example.com"}},
		"another zone": {full, all(func(s map[string]any) { s["hostedZoneId"] = "Z1" }),
			[]string{"record: the DNS record of registry.example.com"}},
		"no key": {encrypted, none,
			[]string{"key: the permission for the key " + key + ", which encrypts stored objects"}},
		"another key": {encrypted, map[string]any{"kmsKeyArn": key + "0"},
			[]string{"key: the permission for the key " + key + ", which encrypts stored objects"}},
		"the same key": {encrypted, map[string]any{"kmsKeyArn": key}, nil},
		"a key":        {plain, map[string]any{"kmsKeyArn": key}, nil},
		"all settings": {full, none, []string{
			"access: public access to modules/acme/hello, public access to modules/acme/world, " +
				"the issuer https://a.example.com, the issuer https://b.example.com",
			"bucket: the bucket restored-bucket", "domain: the domain registry.example.com",
			"pool: the user pool physical-Users0A0EEA89", "table: the table restored-table",
		}},
		"another domain": {full,
			all(func(s map[string]any) { s["domainName"] = "larder.example.com" }),
			[]string{"domain: the domain registry.example.com"}},
		"another table": {full, all(func(s map[string]any) { s["tableName"] = "other" }),
			[]string{"table: the table restored-table"}},
		"another bucket": {full, all(func(s map[string]any) { s["bucketName"] = "other" }),
			[]string{"bucket: the bucket restored-bucket"}},
		"stores of its own, for others": {plain, map[string]any{"tableName": "restored-table",
			"bucketName": "restored-bucket"}, []string{
			"bucket: the bucket physical-bucket83908e77", "table: the table physical-TableCD117FA1",
		}},
		"its own stores, by name": {plain, map[string]any{"tableName": "physical-TableCD117FA1",
			"bucketName": "physical-bucket83908e77"}, nil},
		"no pool": {full, all(func(s map[string]any) { delete(s, "cognito") }),
			[]string{"pool: the user pool physical-Users0A0EEA89"}},
		"a rule of the pool": {full, all(func(s map[string]any) {
			s["cognito"] = map[string]any{"domainPrefix": "acme-larder",
				"rules": []any{map[string]any{"claims": map[string]any{"cognito:groups": "others"},
					"scopes": []any{"read:**"}}}}
		}), []string{"access: read:** by rule 1 of issuer the stack's user pool"}},
		"more by the pool": {full, all(func(s map[string]any) {
			s["cognito"] = map[string]any{"domainPrefix": "acme-larder", "rules": append(slices.Clone(users),
				map[string]any{"claims": map[string]any{"cognito:groups": "others"}, "scopes": []any{"read:**"}})}
		}), nil},
		"a public pattern": {full,
			all(func(s map[string]any) { s["access"].(map[string]any)["public"] = []any{"modules/acme/world"} }),
			[]string{"access: public access to modules/acme/hello"}},
		"a wider pattern": {full,
			all(func(s map[string]any) { s["access"].(map[string]any)["public"] = []any{"modules/acme/*"} }), nil},
		"an audience": {full,
			all(func(s map[string]any) { issuers(s)[0].(map[string]any)["audiences"] = []any{"x", "z"} }),
			[]string{"access: the audience y of issuer https://a.example.com"}},
		"a client": {full,
			all(func(s map[string]any) { issuers(s)[1].(map[string]any)["clientIds"] = []any{"d"} }),
			[]string{"access: the client c of issuer https://b.example.com"}},
		"claims of a rule": {full,
			all(func(s map[string]any) { rule(s)["claims"] = map[string]any{"group": "c"} }),
			[]string{"access: read:modules/** and publish:modules/acme/* by rule 1 of issuer https://a.example.com"}},
		"a scope": {full,
			all(func(s map[string]any) { rule(s)["scopes"] = []any{"read:modules/**"} }),
			[]string{"access: publish:modules/acme/* by rule 1 of issuer https://a.example.com"}},
		"a narrower scope": {full, all(func(s map[string]any) {
			rule(s)["scopes"] = []any{"read:modules/acme/*", "publish:modules/acme/*"}
		}), []string{"access: read:modules/** by rule 1 of issuer https://a.example.com"}},
		"wider scopes": {full, all(func(s map[string]any) {
			rule(s)["scopes"] = []any{"read:**", "publish:modules/**"}
		}), nil},
		"an order": {full, all(func(s map[string]any) { slices.Reverse(issuers(s)) }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			now, m := parsed(t, test.now), own
			if now.TableName != "" {
				m.table = ""
			}
			if now.BucketName != "" {
				m.bucket = ""
			}
			if now.Cognito != nil {
				m.pool = pool.pool
			}
			var got []string
			for _, d := range test.was.drops(now, m) {
				got = append(got, d.kind+": "+d.what)
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// lostAccess returns rules that grant less than before, and ignores rules that
// grant more.
func TestLostAccess(t *testing.T) {
	t.Parallel()
	// by returns access settings with one issuer that has one rule.
	by := func(claims, scope string) string {
		return `{"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"], "rules": [{"claims": ` + claims +
			`, "scopes": ["` + scope + `"]}]}]}`
	}
	const (
		issuers = `"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"], "rules": [{"claims": {"sub": "**"},
			"scopes": ["read:**"]}]}, {"issuer": "https://b.example.com", "audiences": ["x"], "rules": [{"claims":
			{"sub": "**"}, "scopes": ["read:**"]}]}]`
		noLogin = `{` + issuers + `}`
		byA     = `{` + issuers + `, "login": {"issuer": "https://a.example.com", "client": "c"}}`
		byB     = `{` + issuers + `, "login": {"issuer": "https://b.example.com", "client": "c"}}`
		lost    = "read:modules/** by rule 1 of issuer https://a.example.com"
	)
	for name, test := range map[string]struct {
		was, now string
		cognito  bool
		want     string
	}{
		"no access": {"{}", "{}", false, ""},
		"open to everyone": {`{"public": ["**"]}`, by(`{"group": "a"}`, "read:**"), false,
			"public access to **"},
		"no JSON": {"${Access}", "{}", false, "access rules that this release cannot read"},
		"a verb of another release": {by(`{"group": "a"}`, "delete:**"), by(`{"group": "a"}`, "read:**"), false,
			"access rules that this release cannot read"},
		"any value": {by(`{"group": "a"}`, "read:modules/**"), by(`{"group": "**"}`, "read:modules/**"), false, ""},
		"any segment": {by(`{"group": "a/b"}`, "read:modules/**"), by(`{"group": "a/*"}`, "read:modules/**"),
			false, ""},
		"a claim less": {by(`{"group": "a", "ref": "main"}`, "read:modules/**"),
			by(`{"group": "a"}`, "read:modules/**"), false, ""},
		"a claim more": {by(`{"group": "a"}`, "read:modules/**"),
			by(`{"group": "a", "ref": "main"}`, "read:modules/**"), false, lost},
		"another claim": {by(`{"group": "a"}`, "read:modules/**"), by(`{"ref": "a"}`, "read:modules/**"), false,
			lost},
		"a narrower value": {by(`{"group": "a/**"}`, "read:modules/**"), by(`{"group": "a/*"}`, "read:modules/**"),
			false, lost},
		// Claims match whole values, unlike scopes.
		"a value above": {by(`{"group": "a/b"}`, "read:modules/**"), by(`{"group": "a"}`, "read:modules/**"), false,
			lost},
		"wider claims of a narrower scope": {by(`{"group": "a"}`, "read:modules/**"),
			by(`{"group": "**"}`, "read:modules/acme"), false, lost},
		"the same login":       {byA, byA, false, ""},
		"a new login":          {noLogin, byA, false, ""},
		"a login":              {byA, noLogin, false, "the login by https://a.example.com"},
		"a login by another":   {byA, byB, false, "the login by https://a.example.com"},
		"a login by user pool": {byA, noLogin, true, "the login by https://a.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Settings{Access: test.now}
			if test.cognito {
				s.Cognito = &Cognito{}
			}
			if diff := cmp.Diff(test.want, strings.Join(lostAccess(test.was, s), ", ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A deploy is rejected unless each kind of drop is allowed.
func TestRefusal(t *testing.T) {
	texts := golden.New(t)
	chdir(t)
	drops := []drop{{"domain", "the domain registry.example.com"}, {"table", "the table t"}}
	s := Settings{StackName: "larder"}
	t.Run("no file", func(t *testing.T) {
		texts.Text(t, refusal(choices{file: "settings.json"}, s, drops))
	})
	if err := os.WriteFile("settings.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("one allowed", func(t *testing.T) {
		texts.Text(t, refusal(choices{file: "settings.json", allowed: []string{"domain"}}, s, drops))
	})
	if got := refusal(choices{file: "settings.json", allowed: []string{"table", "domain", "pool"}}, s,
		drops); got != "" {
		t.Error(got)
	}
}

// If the stack cannot be read, a deploy is rejected unless all kinds are
// allowed.
func TestUnreadStack(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	all := []string{"pool", "key", "access", "bucket", "table", "record", "domain"}
	f := found{unread: errors.New("it is unreadable"), refused: []string{"r"}, warnings: []string{"w"}}
	for name, test := range map[string]struct {
		f                 found
		allowed           []string
		refused, warnings int
	}{
		"read":     {found{}, nil, 0, 0},
		"refused":  {f, nil, 2, 1},
		"one less": {f, all[1:], 2, 1},
		"allowed":  {f, all, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused, warnings := test.f.judge(choices{allowed: test.allowed}, Settings{}, made{})
			if len(refused) != test.refused {
				t.Errorf("%d refusals, want %d", len(refused), test.refused)
			}
			if len(warnings) != test.warnings {
				t.Errorf("%d warnings, want %d", len(warnings), test.warnings)
			}
			texts.Text(t, "refused: "+strings.Join(refused, "\n")+"\nwarnings: "+strings.Join(warnings, "\n")+"\n")
		})
	}
}
