package pagetest

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/browser"
)

// A person logs in with a token, follows links through all kinds of pages, and
// logs out. No page needs a script.
func (s *site) testWalk(t *testing.T) {
	t.Parallel()
	p := s.person(t, browser.View{NoScripts: true})
	p.wantAnonymous()
	p.fill("#token", "not-a-token")
	p.follow(".login button")
	p.wantAt("/login", "Log in to "+host)
	p.wantText(".banner", "This is not a valid token of the registry.")
	p.fill("#token", s.token)
	p.follow(".login button")
	p.wantAt("/", host)
	p.wantText(".account summary", account)
	old := p.session()

	p.walkModule()
	p.walkProviders()

	p.opens("/modules/acme/vcp/aws", http.StatusNotFound)
	p.wantAt("/modules/acme/vcp/aws", "Not found")
	p.fill("#ask", "vpc")
	p.follow(".ask button")
	p.wantText("h1", "results for “vpc”")

	p.click(".account summary")
	p.follow(".account button")
	p.wantAt("/login?next=%2F", "Log in to "+host)
	if p.session() != "" {
		t.Error("the browser has a session after the logout")
	}
	p.must(p.page.SetCookie(p.ctx, browser.Cookie{
		Name: cookieName, Value: old, Domain: host, Path: "/", Secure: true, HTTPOnly: true, SameSite: "Lax",
	}))
	p.opens("/", http.StatusOK)
	p.wantAt("/login?next=%2F&ended=1", "Log in to "+host)
	p.wantText(".banner", "Your session has ended. Log in again.")
}

const (
	vpc            = "/modules/acme/vpc/aws"
	mirroredModule = "/mirror-modules/registry.example.net/example-modules/vpc/aws"
)

// walkModule goes from home to a module, and to everything that belongs to it.
func (p *person) walkModule() {
	p.t.Helper()
	p.fill("#ask", "flow log")
	p.follow(".ask button")
	p.wantText("h1", "results for “flow log”")
	p.followLink(vpc)
	p.wantAt(vpc, "acme/vpc/aws")
	p.wantText("#use", `source = "`+host+`/acme/vpc/aws"`)
	p.click(".picker summary")
	p.followLink(vpc + "/4.1.0")
	p.wantText(".banner", "4.1.0 is deprecated.")
	p.follow(`.banner a[href*="/compare"]`)
	p.wantAt(vpc+"/compare?from=4.1.0&to=4.2.0", "acme/vpc/aws 4.1.0 → 4.2.0")
	p.must(p.page.Evaluate(p.ctx, `document.querySelector("select[name=from]").value = "3.19.0"`, nil))
	p.follow(".choose button")
	p.wantAt(vpc+"/compare?from=3.19.0&to=4.2.0", "acme/vpc/aws 3.19.0 → 4.2.0")
	p.wantText(".banner", "breaking changes.")
	p.followLink(vpc + "/4.2.0")
	p.follow(`#submodules a[href="` + vpc + `/4.2.0/modules/endpoints"]`)
	p.wantText("#inputs", "vpc_id")
	p.opens(vpc+"/4.2.0", http.StatusOK)
	p.followLink(vpc + "/4.2.0/examples/complete")
	p.wantText("main", "complete")
	p.opens(vpc, http.StatusOK)
	p.click(".picker summary")
	p.followLink(vpc + "/versions")
	p.wantAt(vpc+"/versions", "Versions of acme/vpc/aws")
	p.wantText("table", "It contains a key of the build account.")
	p.followLink("/modules/acme")
	p.wantAt("/modules/acme", "acme")
}

// walkProviders goes from home to a provider, to a mirrored one, and to the
// guide.
func (p *person) walkProviders() {
	p.t.Helper()
	p.follow(".home")
	p.followLink("/providers")
	p.followLink("/providers/acme/inventory")
	p.wantAt("/providers/acme/inventory", "acme/inventory")
	p.wantText("#use", "required_providers")
	p.wantText("#platforms", "linux")
	p.follow(".home")
	p.followLink("/mirror")
	p.followLink("/mirror/registry.example.net/hashicorp/aws")
	p.wantAt("/mirror/registry.example.net/hashicorp/aws", "hashicorp/aws")
	p.wantText("#use", "providers-of")
	p.followLink("/setup")
	p.wantText("pre", "tofu login "+host)
}

// Each of these takes few clicks and typed fields from home.
func (s *site) testSteps(t *testing.T) {
	t.Parallel()
	p := s.account(t, browser.View{})
	for _, test := range []struct {
		name, typed, module string
		then                []string // links and buttons of the module's page
		at, shown, want     string
		max                 int
	}{
		{"copy the module block", "vpc", vpc, []string{"#use .copy"}, vpc, "#use .copy", "Copied", 4},
		{
			"read the code of an input", "nat_gateways", vpc, []string{"#input-nat_gateways .at"},
			vpc + "/4.2.0/files/variables.tf", "span:target", `variable "nat_gateways"`, 4,
		},
		{
			"read the code of an example", "vpc", vpc, []string{`#examples a[href$="/complete"]`},
			vpc + "/4.2.0/examples/complete", "#code", `source = "` + host + `/acme/vpc/aws"`, 4,
		},
		{
			"find a module by an input", "gateway_retention", "/modules/platform/everything/aws", nil,
			"/modules/platform/everything/aws", "#input-gateway_retention", "number = 365", 3,
		},
	} {
		p.opens("/", http.StatusOK)
		p.fill("#ask", test.typed)
		p.follow(".ask button")
		p.followLink(test.module)
		for _, selector := range test.then {
			p.click(selector)
		}
		p.wait(`location.pathname === "` + test.at + `" && (document.querySelector("` + test.shown + `")?.innerText ?? "")
			.replace(/\s+/g, " ").includes(` + strconv.Quote(test.want) + `)`)
		if steps := 3 + len(test.then); steps > test.max {
			t.Errorf("%s: %d steps, want at most %d", test.name, steps, test.max)
		}
	}
}

// Each of these questions takes few clicks from home.
func (s *site) testClicks(t *testing.T) {
	t.Parallel()
	p := s.account(t, browser.View{})
	link := func(path string) string { return `a[href="` + path + `"]` }
	for _, test := range []struct {
		question string
		clicks   []string // links, but for radio buttons
		in, want string
		max      int
	}{
		{
			"what changed in this version", []string{link(vpc), `.facts a[href*="/compare"]`},
			"h1", "acme/vpc/aws 4.1.0 → 4.2.0", 4,
		},
		{
			"what changed between two versions",
			[]string{link(vpc), ".sections " + link(vpc+"/versions"), "input[name=from][value='3.21.0']", "main button"},
			"h1", "acme/vpc/aws 3.21.0 → 4.2.0", 4,
		},
		{"who published it", []string{link(vpc)}, "#provenance", "acme/terraform-aws-vpc", 3},
		{"who published an old version", []string{link(vpc), ".sections " + link(vpc+"/versions")}, "main table", "claims v3.18.0", 3},
		{"who uses a module", []string{link(vpc), link(vpc + "/used-by")}, "#modules", "platform/eks-cluster/aws", 3},
		{
			"who uses a provider", []string{link("/mirror"), `a[href$="/hashicorp/aws"]`, `a[href$="/used-by"]`},
			"h1", "Who uses hashicorp/aws", 3,
		},
		{"what is wrong with the mirror", []string{link("/status")}, "#mirror", "signed by another key", 2},
		{"what is wrong with mirrored providers", []string{link("/mirror")}, "main", "1 refused", 2},
	} {
		p.opens("/", http.StatusOK)
		for _, selector := range test.clicks {
			if strings.HasPrefix(selector, "input") {
				p.click(selector)
			} else {
				p.follow(selector)
			}
		}
		if text := p.text(test.in); !strings.Contains(text, test.want) {
			t.Errorf("%s: %s is %q, want %q", test.question, test.in, text, test.want)
		}
		if n := len(test.clicks); n > test.max {
			t.Errorf("%s: %d clicks, want at most %d", test.question, n, test.max)
		}
	}
}

// A browser that opens a source gets to its page, and any other path is a page
// too.
func (s *site) testSources(t *testing.T) {
	t.Parallel()
	p := s.person(t, browser.View{NoScripts: true})
	p.opens("/acme/vpc/aws//modules/endpoints?version=4.1.0", http.StatusOK)
	p.fill("#token", s.token)
	p.follow(".login button:last-of-type")
	p.wantAt(vpc+"/4.1.0/modules/endpoints", "modules/endpoints")
	p.opens("/acme/vpc/aws", http.StatusOK)
	p.wantAt(vpc, "acme/vpc/aws")
	p.opens("/acme/inventory", http.StatusOK)
	p.wantAt("/providers/acme/inventory", "acme/inventory")
	p.opens("/acme/vcp/aws", http.StatusNotFound)
	p.wantAt("/acme/vcp/aws", "Not found")
	p.followLink(vpc)
	p.opens("/no/such/page/at/all", http.StatusNotFound)
	p.wantText("h1", "Not found")
}

// followLink follows the first link to a path.
func (p *person) followLink(path string) {
	p.t.Helper()
	p.follow(`a[href="` + path + `"]`)
}

// wantText fails the test unless an element has a text.
func (p *person) wantText(selector, want string) {
	p.t.Helper()
	if text := p.text(selector); !strings.Contains(text, want) {
		p.t.Fatalf("on %s: %s is %q, want %q", p.at(), selector, text, want)
	}
}

// A person logs in with the issuer, and returns to the page that they wanted.
func (s *site) testIssuer(t *testing.T) {
	t.Parallel()
	p := s.person(t, browser.View{})
	const wanted = "/search?q=flow+log&kind=module"
	p.opens(wanted, http.StatusOK)
	p.wantText("h1", "Log in")
	p.follow(`.login a[href^="/login/issuer"]`)
	p.signIn("ada")
	p.wantAt(wanted, p.text("h1"))
	p.wantText("h1", "results for “flow log”")
	p.wantAccount("ada")
	p.click(".account summary")
	p.follow(".account button")
	p.wantAnonymous()
}

// signIn fills in the forms of the issuer, of which the first one is open.
func (p *person) signIn(name string) {
	p.t.Helper()
	p.fill("input[name=login]", name)
	p.fill("input[name=password]", "any")
	p.follow("button[type=submit]")
	if strings.HasPrefix(p.at(), p.issuer.URL) {
		p.follow("button[type=submit]") // consent
	}
}
