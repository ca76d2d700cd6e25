package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/settings"
)

// dropKinds are the kinds of resources that a deploy drops only if -c
// allow-drop names them.
var dropKinds = []string{"domain", "record", "table", "bucket", "key", "access", "pool"}

// drop is a resource or an access rule of the deployed stack that the new stack
// does not have.
type drop struct {
	kind, what string
}

// deployed has the template and the outputs of a deployed stack.
type deployed struct {
	Outputs   map[string]string `json:"-"`
	Resources map[string]struct {
		Type       string
		Properties map[string]any
	}
}

// made has the logical IDs of the stores and the user pool that a stack
// creates. An ID is empty if the stack does not create the resource.
type made struct {
	table, bucket, pool string
}

// madeBy returns the logical IDs of the resources that a stack creates.
func madeBy(stack awscdk.Stack) made {
	name := func(id string) string {
		child := stack.Node().TryFindChild(&id)
		if child == nil {
			return ""
		}
		// A table or a bucket that the stack adopts is not a resource of the
		// stack.
		if resource, ok := child.Node().DefaultChild().(awscdk.CfnElement); ok && resource != nil {
			return *stack.GetLogicalId(resource)
		}
		return ""
	}
	return made{table: name("Table"), bucket: name("Bucket"), pool: name("Users")}
}

// drops returns what a deploy with these settings would drop from the deployed
// stack.
func (d *deployed) drops(s Settings, m made) []drop {
	var all []drop
	if domain := d.domain(); domain != "" && domain != s.DomainName {
		all = append(all, drop{"domain", "the domain " + domain})
	} else if zone := d.zone(); zone != "" && zone != s.HostedZoneID {
		all = append(all, drop{"record", "the DNS record of " + domain})
	}
	if key := d.Outputs[settings.OutputKey]; key != "" && key != s.KMSKeyARN {
		all = append(all, drop{"key", "the permission for the key " + key + ", which encrypts stored objects"})
	}
	for _, store := range []struct {
		kind, was, adopts, makes string
	}{
		{"table", d.Outputs[settings.OutputTable], s.TableName, m.table},
		{"bucket", d.Outputs[settings.OutputBucket], s.BucketName, m.bucket},
	} {
		_, keeps := d.Resources[store.makes]
		if store.was != "" && store.was != store.adopts && (store.adopts != "" || !keeps) {
			all = append(all, drop{store.kind, "the " + store.kind + " " + store.was})
		}
	}
	pool, hasPool := d.pool()
	if hasPool && pool != m.pool {
		all = append(all, drop{"pool", "the user pool " + d.Outputs[settings.OutputUserPool]})
	}
	if lost := lostAccess(d.access(), s); len(lost) > 0 {
		all = append(all, drop{"access", strings.Join(lost, ", ")})
	}
	return all
}

// domain returns the domain of a stack's gateway. It is empty if there is none.
func (d *deployed) domain() string {
	for _, r := range d.Resources {
		if r.Type == "AWS::ApiGatewayV2::DomainName" {
			return templateText(r.Properties["DomainName"])
		}
	}
	return ""
}

// zone returns the id of the hosted zone with the DNS record of a stack's domain. It
// is empty if there is none.
func (d *deployed) zone() string {
	for _, r := range d.Resources {
		if r.Type == "AWS::Route53::RecordSet" {
			return templateText(r.Properties["HostedZoneId"])
		}
	}
	return ""
}

// pool returns the logical ID of a stack's user pool.
func (d *deployed) pool() (id string, found bool) {
	for id, r := range d.Resources {
		if r.Type == "AWS::Cognito::UserPool" {
			return id, true
		}
	}
	return "", false
}

func (d *deployed) access() string {
	s, _ := settings.FromEnvironment(d.variable) // the access rules suffice
	return s.Access
}

func (d *deployed) variable(key string) string {
	for _, name := range slices.Sorted(maps.Keys(d.Resources)) {
		r := d.Resources[name]
		if r.Type != "AWS::Lambda::Function" {
			continue
		}
		environment, _ := r.Properties["Environment"].(map[string]any)
		variables, _ := environment["Variables"].(map[string]any)
		if v, ok := variables[key]; ok {
			return templateText(v)
		}
	}
	return ""
}

// ofPool is the placeholder for the URL of the stack's user pool, which a
// template does not contain.
const ofPool = "the stack's user pool"

// lostAccess returns the access that the deployed functions grant and that the
// settings would not grant. deployed is the access setting of the functions.
func lostAccess(deployed string, s Settings) (lost []string) {
	var was, now access.Settings
	// Another release may have written it, so unknown fields are accepted.
	if err := json.Unmarshal([]byte(deployed), &was); err != nil {
		return []string{"access rules that this release cannot read"}
	}
	if err := json.Unmarshal([]byte(s.Access), &now); err != nil {
		panic(err) // parseSettings wrote it
	}
	if s.Cognito != nil {
		now.Issuers = append(now.Issuers, access.Issuer{Issuer: ofPool, Rules: s.Cognito.Rules})
	}
	for _, p := range was.Public {
		if !slices.ContainsFunc(now.Public, func(q access.Pattern) bool { return q.Covers(p) }) {
			lost = append(lost, "public access to "+strings.Join(p, "/"))
		}
	}
	for _, i := range was.Issuers {
		if strings.Contains(i.Issuer, reference) {
			if s.Cognito == nil {
				continue // it is removed with the pool, which drops reports
			}
			i = access.Issuer{Issuer: ofPool, Rules: i.Rules}
		}
		at := slices.IndexFunc(now.Issuers, func(n access.Issuer) bool { return n.Issuer == i.Issuer })
		if at < 0 {
			lost = append(lost, "the issuer "+i.Issuer)
			continue
		}
		lost = append(lost, lostByIssuer(i, now.Issuers[at])...)
	}
	if was.Login != nil && !strings.Contains(was.Login.Issuer, reference) &&
		(now.Login == nil || now.Login.Issuer != was.Login.Issuer) {
		lost = append(lost, "the login by "+was.Login.Issuer)
	}
	return lost
}

// lostByIssuer returns the audiences, clients and scopes of an issuer's tokens
// that the new rules do not accept.
func lostByIssuer(was, now access.Issuer) (lost []string) {
	for _, audience := range was.Audiences {
		if !slices.Contains(now.Audiences, audience) {
			lost = append(lost, fmt.Sprintf("the audience %s of issuer %s", audience, was.Issuer))
		}
	}
	for _, client := range was.ClientIDs {
		if !slices.Contains(now.ClientIDs, client) {
			lost = append(lost, fmt.Sprintf("the client %s of issuer %s", client, was.Issuer))
		}
	}
	for n, rule := range was.Rules {
		var scopes []string
		for _, scope := range rule.Scopes {
			if !slices.ContainsFunc(now.Rules, func(r access.Rule) bool {
				return r.AcceptsAll(rule) && slices.ContainsFunc(r.Scopes, func(s access.Scope) bool {
					return s.Verb == scope.Verb && s.Pattern.Covers(scope.Pattern)
				})
			}) {
				text, _ := scope.MarshalText() // it never fails
				scopes = append(scopes, string(text))
			}
		}
		if len(scopes) > 0 {
			lost = append(lost, fmt.Sprintf("%s by rule %d of issuer %s", strings.Join(scopes, " and "), n+1,
				was.Issuer))
		}
	}
	return lost
}

// reference begins each reference in the text that templateText returns.
const reference = "${"

// templateText returns the text of a value in a template, with ${NAME} for each
// reference.
func templateText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		if ref, ok := v["Ref"].(string); ok {
			return reference + ref + "}"
		}
		if join, ok := v["Fn::Join"].([]any); ok && len(join) == 2 {
			parts, _ := join[1].([]any)
			var texts []string
			for _, part := range parts {
				texts = append(texts, templateText(part))
			}
			return strings.Join(texts, fmt.Sprint(join[0]))
		}
		if get, ok := v["Fn::GetAtt"].([]any); ok {
			var parts []string
			for _, part := range get {
				parts = append(parts, fmt.Sprint(part))
			}
			return reference + strings.Join(parts, ".") + "}"
		}
	}
	return reference + "}"
}

// judge returns the errors with which the CDK rejects a deploy, and warnings.
func (f found) judge(c choices, s Settings, m made) (refused, warnings []string) {
	refused, warnings = f.refused, f.warnings
	why := ""
	switch {
	case f.unread != nil:
		if why = refusalOfUnread(c, f.unread); why == "" {
			warnings = append(warnings, notCompared(f.unread))
		}
	case f.stack != nil:
		why = refusal(c, s, f.stack.drops(s, m))
	}
	if why != "" {
		refused = append(refused, why)
	}
	return refused, warnings
}

// refusal returns the error with which the CDK rejects a deploy. It is empty if
// all drops are allowed.
func refusal(c choices, s Settings, drops []drop) string {
	var kinds, what []string
	for _, d := range drops {
		kinds = append(kinds, d.kind)
		if !slices.Contains(c.allowed, d.kind) {
			what = append(what, d.what)
		}
	}
	if len(what) == 0 {
		return ""
	}
	why := c.file + " lacks settings of the deployed stack"
	if _, err := os.Stat(c.file); err != nil {
		why = c.file + " does not exist"
	}
	return fmt.Sprintf("cannot deploy: %s, and the stack %s would lose %s. "+
		"Put the settings back, or allow it: -c %s=%s",
		why, s.StackName, strings.Join(what, "; "), contextAllowDrop, strings.Join(kinds, ","))
}

// notCompared returns the warning for a deploy whose settings could not be
// compared with the deployed stack.
func notCompared(why error) string {
	return fmt.Sprintf("cannot compare the settings with the deployed stack: %v", why)
}

// refusalOfUnread returns the error with which the CDK rejects a deploy over a
// stack that could not be read. It is empty if the deploy may drop everything.
func refusalOfUnread(c choices, why error) string {
	if !slices.ContainsFunc(dropKinds, func(kind string) bool { return !slices.Contains(c.allowed, kind) }) {
		return ""
	}
	return fmt.Sprintf("cannot deploy: %s. To deploy without the comparison: -c %s=%s",
		notCompared(why), contextAllowDrop, strings.Join(dropKinds, ","))
}
