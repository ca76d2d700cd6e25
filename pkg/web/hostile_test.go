package web_test

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/registry"
)

// hostile are texts that publishers and links can choose.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
	`</title><script>alert(1)</script>`,
	`</code></pre><svg onload=alert(1)>`, "`</code><script>alert(1)</script>`", `javascript:alert(1)`, `{{.Host}}`,
	"\u202e\u2066evil", `<style>body{display:none}</style>`, `<base href=//evil.example>`, "\x00<b>",
	`![x](https://evil.example/p.png) [click](https://evil.example) <b>`, `<https://evil.example>`, "# a\n\n[a]: //evil.example",
	"`a\\|b` | ![x](//evil.example) `c|d`", "``a` [b](//evil.example)`", "> * [a](//evil.example)",
}

// check returns what a page must not have: an element or an attribute that runs
// or loads something, or that the pages never use.
func check(page string) (problems []string) {
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return problems
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			switch token.Data {
			case "img", "style", "iframe", "base", "object", "embed", "b2":
				problems = append(problems, token.String())
			}
			for _, a := range token.Attr {
				local := strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "//")
				if a.Key == "href" && strings.HasPrefix(a.Val, "https://"+host+"/") {
					continue
				}
				loads := a.Key == "src" || token.Data == "link" && a.Key == "href"
				scheme := strings.HasPrefix(strings.TrimSpace(strings.ToLower(a.Val)), "javascript:")
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || loads && !local || a.Key == "href" && scheme {
					problems = append(problems, token.String())
				}
			}
		case html.TextToken:
			if text := z.Token().Data; strings.ContainsAny(text, "\u202e\u2066") {
				problems = append(problems, "a control character of direction in "+text)
			}
		}
	}
}

// Texts of publishers stay texts, wherever they are.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	for _, evil := range hostile {
		t.Run(evil, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			m := address(t, "acme/evil/aws")
			folder := docs.Folder{
				Path: "modules/" + evil, Name: evil, Readme: evil, RequiredVersion: evil,
				Inputs: []docs.Input{
					{Name: evil, Type: evil, Description: evil, Required: true, Deprecated: evil, Validations: []string{evil}},
					{Name: "x" + evil, Type: evil, Description: evil, Default: evil},
				},
				Outputs:              []docs.Output{{Name: evil, Description: evil, Deprecated: evil}},
				Dependencies:         []docs.Dependency{{Name: evil, Source: evil, Version: evil}},
				ProviderDependencies: []docs.ProviderDependency{{Name: evil, Source: evil, Version: evil}},
				Resources:            []docs.Resource{{Type: evil, Name: evil}},
			}
			root := folder
			root.Path = ""
			d := docs.Documentation{Root: root, Submodules: []docs.Folder{folder}, Examples: []docs.Folder{folder}}
			d.Notes = []string{evil}
			s.module("acme/evil/aws", "1.0.0", map[string]string{}, func(r *registry.ModuleVersion) {
				s.document(m, r, d)
				r.Description, r.PublishedBy = evil, registry.Publisher{
					Kind: registry.PublisherOIDC, Name: evil, Repository: evil, Ref: evil, Commit: evil, RunURL: "https://" + evil,
				}
				r.Deprecated = evil
				r.Claimed = &registry.ClaimedSource{Remote: "https://github.com/" + evil, Commit: evil, Tag: evil, Dirty: true}
				r.CopiedFrom = &registry.CopiedFrom{Source: evil, Claimed: &registry.ClaimedSource{Remote: evil, Commit: evil}}
			})
			s.module("acme/used/aws", "1.0.0", nil)
			s.module("acme/user/aws", "1.0.0", nil, func(r *registry.ModuleVersion) {
				r.Contents = registry.Contents{Calls: []registry.Use{{Source: host + "/acme/used/aws", Constraint: evil}}}.Encode()
			})
			pages := s.serve()
			const path, usedBy = "/modules/acme/evil/aws", "/modules/acme/used/aws/used-by"
			contains(t, pages.text(t, http.StatusOK, usedBy), "acme/user/aws")
			for _, path := range []string{"/", "/modules", "/search?q=evil", path, path + "/versions", usedBy} {
				page := pages.text(t, http.StatusOK, path)
				for _, problem := range check(page) {
					t.Errorf("%s has %s", path, problem)
				}
			}
			for _, path := range []string{"/index", "/modules", path, path + "/versions", usedBy} {
				markdown, _, _ := strings.Cut(pages.text(t, http.StatusOK, path+".md"), "\n## README\n")
				for _, problem := range live(markdown) {
					t.Errorf("%s.md has %s", path, problem)
				}
			}
		})
	}
}

// Texts of origins and of operators stay texts, on pages and in Markdown.
func TestHostileOrigins(t *testing.T) {
	t.Parallel()
	const p = "registry.opentofu.org/hashicorp/random"
	for _, evil := range hostile {
		t.Run(evil, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			s.mirrored(p, "1.0.0")
			s.policy(registry.MirrorRule{Deny: true, Reason: evil})
			decision := registry.Decision{At: published, By: evil, Reason: evil}
			s.origin(p, func(o *registry.MirrorOrigin) {
				o.Admit(number(t, "1.0.0"), decision)
				o.Unsigned = &decision
				trusted := originKey("51852D87348FFC4C")
				trusted.Owner, trusted.Trusted = evil, &decision
				o.Trust(trusted)
				o.Refuse(registry.RefusedVersion{
					Version: number(t, "1.1.0"), Key: registry.OriginKey{ID: evil, Fingerprint: evil, Owner: evil},
				})
			})
			web := s.serve()
			for _, path := range []string{random, random + "/versions"} {
				page := web.text(t, http.StatusOK, path)
				for _, problem := range check(page) {
					t.Errorf("%s has %s", path, problem)
				}
				contains(t, page, "admitted", "signed by another key", "no further versions")
				markdown := web.text(t, http.StatusOK, path+".md")
				if i := strings.IndexAny(markdown, "\x00\u202e\u2066"); i >= 0 {
					t.Errorf("%s.md has a control character after %q", path, markdown[max(i-40, 0):i])
				}
				for _, problem := range live(markdown) {
					t.Errorf("%s.md has %s", path, problem)
				}
			}
		})
	}
}

// Texts of links stay texts.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	pages := sample(t).serve()
	escape := strings.NewReplacer("%", "%25", " ", "%20", "\x00", "%00", "\u202e", "%E2%80%AE", "\u2066", "%E2%81%A6",
		"\n", "%0A", "#", "%23", "&", "%26", "\"", "%22", "<", "%3C", ">", "%3E", "`", "%60", "{", "%7B", "}", "%7D")
	for _, evil := range hostile {
		e := escape.Replace(evil)
		for _, path := range []string{
			"/search?q=" + e, "/search?q=vpc&ns=" + e, "/search?q=vpc&kind=" + e, "/search?system=" + e, "/search?after=" + e,
			"/modules/" + strings.ReplaceAll(e, "/", "%2F"), "/modules/acme/vpc/aws/" + strings.ReplaceAll(e, "/", "%2F"),
			"/setup?x=" + e, "/login?next=" + e,
		} {
			for _, problem := range check(pages.get(t, path).Body.String()) {
				t.Errorf("%s has %s", path, problem)
			}
		}
	}
}
