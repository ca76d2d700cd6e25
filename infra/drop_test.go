package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/settings"
)

// everything is all that a deploy can drop.
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

// deploy returns a stack as CloudFormation has it after a deploy of settings.
func deploy(t *testing.T, s Settings) *deployed {
	t.Helper()
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir())})
	newStack(app, s, stubs(t))
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
	return d
}

func parsed(t *testing.T, given map[string]any) Settings {
	t.Helper()
	s, err := settingsOf(t, given, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// makes returns what a stack of settings makes of its own.
func makes(t *testing.T, s Settings) made {
	t.Helper()
	return madeBy(newStack(awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir())}), s, stubs(t)))
}

// Each thing that a deploy would drop is named, by what is deployed alone. What it
// keeps, adds or widens is not.
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
	deployments := make(map[string]*deployed) // synthesis takes long
	own := makes(t, defaults(t))
	pool := makes(t, parsed(t, everything()))
	if own.table == "" || own.bucket == "" || own.pool != "" || pool.table != "" || pool.bucket != "" ||
		pool.pool == "" {
		t.Fatalf("a plain stack makes %+v, one that adopts %+v", own, pool)
	}
	for name, test := range map[string]struct {
		was, now map[string]any
		want     []string // KIND: what
	}{
		"nothing":  {none, none, nil},
		"the same": {everything(), everything(), nil},
		"more than before": {none, all(func(s map[string]any) {
			delete(s, "tableName")
			delete(s,
				"bucketName")
		}), nil},
		"all settings": {everything(), none, []string{
			"access: public access to modules/acme/hello, public access to modules/acme/world, the issuer https://a.example.com, the issuer https://b.example.com",
			"bucket: the bucket restored-bucket", "domain: the domain registry.example.com",
			"pool: the user pool physical-Users0A0EEA89", "table: the table restored-table",
		}},
		"another domain": {everything(),
			all(func(s map[string]any) { s["domainName"] = "larder.example.com" }),
			[]string{"domain: the domain registry.example.com"}},
		"another table": {everything(), all(func(s map[string]any) { s["tableName"] = "other" }),
			[]string{"table: the table restored-table"}},
		"another bucket": {everything(), all(func(s map[string]any) { s["bucketName"] = "other" }),
			[]string{"bucket: the bucket restored-bucket"}},
		"stores of its own, for others": {none, map[string]any{"tableName": "restored-table",
			"bucketName": "restored-bucket"}, []string{
			"bucket: the bucket physical-bucket83908e77", "table: the table physical-TableCD117FA1",
		}},
		"its own stores, by name": {none, map[string]any{"tableName": "physical-TableCD117FA1",
			"bucketName": "physical-bucket83908e77"}, nil},
		"no pool": {everything(), all(func(s map[string]any) { delete(s, "cognito") }),
			[]string{"pool: the user pool physical-Users0A0EEA89"}},
		"a rule of the pool": {everything(), all(func(s map[string]any) {
			s["cognito"] = map[string]any{"domainPrefix": "acme-larder",
				"rules": []any{map[string]any{"claims": map[string]any{"cognito:groups": "others"},
					"scopes": []any{"read:**"}}}}
		}), []string{"access: read:** by rule 1 of issuer the stack's user pool"}},
		"more by the pool": {everything(), all(func(s map[string]any) {
			s["cognito"] = map[string]any{"domainPrefix": "acme-larder", "rules": append(slices.Clone(users),
				map[string]any{"claims": map[string]any{"cognito:groups": "others"}, "scopes": []any{"read:**"}})}
		}), nil},
		"a public pattern": {everything(),
			all(func(s map[string]any) { s["access"].(map[string]any)["public"] = []any{"modules/acme/world"} }), []string{"access: public access to modules/acme/hello"}},
		"a wider pattern": {everything(),
			all(func(s map[string]any) { s["access"].(map[string]any)["public"] = []any{"modules/acme/*"} }), nil},
		"open to everyone": {map[string]any{"anonymousRead": true}, map[string]any{"access": twoIssuers()},
			[]string{"access: public access to **"}},
		"an audience": {everything(),
			all(func(s map[string]any) { issuers(s)[0].(map[string]any)["audiences"] = []any{"x", "z"} }),
			[]string{"access: the audience y of issuer https://a.example.com"}},
		"a client": {everything(),
			all(func(s map[string]any) { issuers(s)[1].(map[string]any)["clientIds"] = []any{"d"} }),
			[]string{"access: the client c of issuer https://b.example.com"}},
		"claims of a rule": {everything(),
			all(func(s map[string]any) { rule(s)["claims"] = map[string]any{"group": "c"} }),
			[]string{"access: read:modules/** and publish:modules/acme/* by rule 1 of issuer https://a.example.com"}},
		"a scope": {everything(),
			all(func(s map[string]any) { rule(s)["scopes"] = []any{"read:modules/**"} }),
			[]string{"access: publish:modules/acme/* by rule 1 of issuer https://a.example.com"}},
		"a narrower scope": {everything(), all(func(s map[string]any) {
			rule(s)["scopes"] = []any{"read:modules/acme/*", "publish:modules/acme/*"}
		}), []string{"access: read:modules/** by rule 1 of issuer https://a.example.com"}},
		"wider scopes": {everything(), all(func(s map[string]any) {
			rule(s)["scopes"] = []any{"read:**",
				"publish:modules/**"}
		}), nil},
		"an order": {everything(), all(func(s map[string]any) { slices.Reverse(issuers(s)) }), nil},
		"a login": {map[string]any{"access": map[string]any{
			"issuers": []any{map[string]any{"issuer": "https://a.example.com", "audiences": []any{"x"},
				"rules": users}}, "login": map[string]any{"issuer": "https://a.example.com", "client": "c"},
		}}, map[string]any{"access": map[string]any{"issuers": []any{map[string]any{"issuer": "https://a.example.com", "audiences": []any{"x"}, "rules": users}}}}, []string{"access: the login by https://a.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			was, now := parsed(t, test.was), parsed(t, test.now)
			if deployments[text(test.was)] == nil {
				deployments[text(test.was)] = deploy(t, was)
			}
			m := own
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
			for _, d := range deployments[text(test.was)].drops(now, m) {
				got = append(got, d.kind+": "+d.what)
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Stacks of earlier releases have fewer outputs, and functions that are told
// less.
func TestDropsOfEarlierReleases(t *testing.T) {
	own := makes(t, defaults(t))
	early := deploy(t, parsed(t, everything()))
	clear(early.Outputs)
	var kinds []string
	for _, d := range early.drops(defaults(t), own) {
		kinds = append(kinds, d.kind)
		if d.kind == "table" && d.what != "the table restored-table" {
			t.Error(d)
		}
	}
	slices.Sort(kinds)
	if diff := cmp.Diff([]string{"access", "bucket", "domain", "pool", "table"}, kinds); diff != "" {
		t.Error(diff)
	}
	first := &deployed{} // which was told of no access, and had no outputs
	if err := json.Unmarshal([]byte(`{"Resources": {"Table": {"Type": "AWS::DynamoDB::Table"}, "f": {"Type": "AWS::Lambda::Function", "Properties": {}}}}`), first); err != nil {
		t.Fatal(err)
	}
	if drops := first.drops(defaults(t), own); len(drops) != 0 {
		t.Error(drops)
	}
}

// What is dropped is refused unless each kind of it is allowed.
func TestRefusal(t *testing.T) {
	t.Chdir(t.TempDir())
	drops := []drop{{"domain", "the domain registry.example.com"}, {"table", "the table t"}}
	s := Settings{StackName: "larder"}
	got := refusal(choices{file: "settings.json"}, s, drops)
	want := "cannot deploy: settings.json does not exist, and the stack larder would lose the domain registry.example.com; " +
		"the table t. Put the settings back, or allow it: -c allow-drop=domain,table"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile("settings.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	got = refusal(choices{file: "settings.json", allowed: []string{"domain"}}, s, drops)
	want = "cannot deploy: settings.json does not have all that is deployed, and the stack larder would lose the table t. " +
		"Put the settings back, or allow it: -c allow-drop=domain,table"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := refusal(choices{file: "settings.json", allowed: []string{"table", "domain", "pool"}}, s,
		drops); got != "" {
		t.Error(got)
	}
}

// A stack that cannot be read refuses a deploy unless all kinds are allowed.
func TestUnreadStack(t *testing.T) {
	t.Parallel()
	const notRead = "cannot compare the settings with the deployed stack: AWS does not answer"
	all := []string{"pool", "access", "bucket", "table", "domain"}
	f := found{unread: errors.New("AWS does not answer"), refused: []string{"r"}, warnings: []string{"w"}}
	for name, test := range map[string]struct {
		f                 found
		allowed           []string
		refused, warnings []string
	}{
		"read":     {found{}, nil, nil, nil},
		"refused":  {f, nil, []string{"r", "cannot deploy: " + notRead + ". To deploy without the comparison: -c allow-drop=domain,table,bucket,access,pool"}, []string{"w"}},
		"one less": {f, all[1:], []string{"r", "cannot deploy: " + notRead + ". To deploy without the comparison: -c allow-drop=domain,table,bucket,access,pool"}, []string{"w"}},
		"allowed":  {f, all, []string{"r"}, []string{"w", notRead}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused, warnings := test.f.judge(choices{allowed: test.allowed}, Settings{}, made{})
			if diff := cmp.Diff(test.refused, refused); diff != "" {
				t.Errorf("refused: %s", diff)
			}
			if diff := cmp.Diff(test.warnings, warnings); diff != "" {
				t.Errorf("warnings: %s", diff)
			}
		})
	}
}
