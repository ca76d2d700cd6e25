package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	waiting = "registry.opentofu.org/acme/waits"
	week    = 7 * 24 * time.Hour
)

// policy sets a rule of the mirror policy for all providers.
func (s *store) policy(rule registry.MirrorRule) {
	s.t.Helper()
	rule.Pattern, rule.Line = "*/*/*", 1
	p := registry.MirrorPolicy{Text: fmt.Sprint(rule), Rules: []registry.MirrorRule{rule}, SetAt: published, SetBy: "ada"}
	if _, err := s.catalog.SetMirrorPolicy(s.t.Context(), p, "1 rule"); err != nil {
		s.t.Fatal(err)
	}
}

// origin changes what the mirror has seen of an origin.
func (s *store) origin(text string, edit func(o *registry.MirrorOrigin)) {
	s.t.Helper()
	p, err := registry.ParseMirrorAddress(text)
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = s.catalog.Mirror.UpdateOrigin(s.t.Context(), p,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			edit(o)
			return true, nil, nil
		})
	if err != nil {
		s.t.Fatal(err)
	}
}

// sees records that the mirror has seen a version.
func (s *store) sees(o *registry.MirrorOrigin, text string, released, seen time.Time) registry.Version {
	s.t.Helper()
	n := number(s.t, text)
	o.See(map[registry.Version]time.Time{n: released}, seen)
	return n
}

// withOrigins returns the store of withProviders with a policy, a provider whose
// versions have all states, and one of which no version is mirrored.
func withOrigins(t testing.TB) *store {
	t.Helper()
	s := withProviders(t)
	s.now = func() time.Time { return published.AddDate(0, 0, 10) }
	s.policy(registry.MirrorRule{MinAge: int64(week / time.Second)})
	s.origin(random[len("/mirror/"):], func(o *registry.MirrorOrigin) {
		at := func(days int) time.Time { return published.AddDate(0, 0, days) }
		s.sees(o, "1.0.0", at(-20), at(-10))
		s.sees(o, "1.1.0", time.Time{}, at(-9))
		o.Admit(s.sees(o, "1.2.0", at(1), at(1)), registry.Decision{
			At: at(2), By: "arn:aws:sts::111122223333:assumed-role/Operator/ada", Reason: "It fixes `CVE-2026-1234`.",
		})
		s.sees(o, "1.3.0", at(8), at(9))
		s.sees(o, "1.3.1-beta.1", at(7), at(7))
		s.sees(o, "1.4.0", at(8), at(8))
		n := s.sees(o, "0.9.0", at(-20), at(-10))
		o.Refuse(registry.RefusedVersion{Version: n, At: at(0), Key: originKey("5F0E3C1B9A7D2468")})
		o.Refuse(registry.RefusedVersion{Version: number(t, "0.9.1"), At: at(0)})
		trusted := originKey("51852D87348FFC4C")
		trusted.Owner, trusted.SeenAt = "Ada <ada@example.com>", at(-10)
		o.Trust(trusted)
	})
	s.origin(waiting, func(o *registry.MirrorOrigin) {
		s.sees(o, "0.1.0", published.AddDate(0, 0, 9), published.AddDate(0, 0, 9))
	})
	return s
}

// originKey returns the signing key with an ID.
func originKey(id string) registry.OriginKey {
	return registry.OriginKey{ID: id, Fingerprint: strings.Repeat("0", 24) + id}
}

func TestMirroredPages(t *testing.T) {
	t.Parallel()
	web := withOrigins(t).serve()
	for file, path := range map[string]string{"states": random, "states-waiting": "/mirror/" + waiting} {
		golden.Equal(t, "testdata/"+file+".html", []byte(mainOf(web.text(t, http.StatusOK, path))))
		golden.Equal(t, "testdata/"+file+".md", []byte(web.text(t, http.StatusOK, path+".md")))
	}
}

// rowOf returns the row of a version in a table of versions, without tags.
func rowOf(t *testing.T, page, version string) string {
	t.Helper()
	for row := range strings.SplitSeq(page, "<tr ") {
		row, _, _ = strings.Cut(row, "</tr>")
		if text := strings.TrimSpace(strings.Join(strings.Fields(textIn("<tr "+row)), " ")); strings.HasPrefix(text, version+" ") {
			return text
		}
	}
	return ""
}

// textIn returns the text between tags.
func textIn(page string) string {
	var out strings.Builder
	for _, part := range strings.Split(page, "<") {
		_, text, _ := strings.Cut(part, ">")
		out.WriteString(text + " ")
	}
	return out.String()
}

func TestMirroredStates(t *testing.T) {
	t.Parallel()
	s := withOrigins(t)
	web := s.serve()
	for _, path := range []string{random, random + "/1.0.0", random + "/versions"} {
		page := web.text(t, http.StatusOK, path)
		for version, want := range map[string]string{
			"1.4.0":        "1.4.0 available 17 Nov from 17 Nov 2026, 09:12 UTC 10 Nov 2026 10 Nov 2026 –",
			"1.3.1-beta.1": "1.3.1-beta.1 available 16 Nov pre-release from 16 Nov 2026, 09:12 UTC 9 Nov 2026 9 Nov 2026 –",
			"1.3.0":        "1.3.0 available 18 Nov from 18 Nov 2026, 09:12 UTC 10 Nov 2026 11 Nov 2026 –",
			"1.2.0": "1.2.0 available admitted 4 Nov 2026 by Operator/ada: It fixes CVE-2026-1234 . " +
				"3 Nov 2026 3 Nov 2026 linux_amd64",
			"1.1.0": "1.1.0 available age unknown – 24 Oct 2026 linux_amd64",
			"1.0.0": "1.0.0 available 13 Oct 2026 23 Oct 2026 linux_amd64",
			"0.9.1": "0.9.1 refused not signed – – –",
			"0.9.0": "0.9.0 refused signed by another key, 5F0E3C1B9A7D2468 13 Oct 2026 23 Oct 2026 –",
		} {
			if got := rowOf(t, page, version); got != want {
				t.Errorf("%s: the row is %q, want %q", path, got, want)
			}
		}
	}
	t.Run("the page of a version that is not mirrored has the reason", func(t *testing.T) {
		const ways = " Go to 1.2.0, the latest version All 8 versions Who uses it"
		for version, want := range map[string]string{
			"1.4.0": "note: 1.4.0 can be mirrored from 17 Nov 2026, 09:12 UTC." + ways,
			"0.9.1": "bad: 0.9.1 is refused. It has no signature, but earlier versions have." + ways,
			"0.9.0": "bad: 0.9.0 is refused. Signed by key 5F0E3C1B9A7D2468, which is not trusted." + ways,
			"9.9.9": "",
		} {
			page := web.text(t, http.StatusNotFound, random+"/"+version)
			if diff := cmp.Diff(want, bannerOf(t, page)); diff != "" {
				t.Errorf("%s: banner (-want +got):\n%s", version, diff)
			}
			contains(t, page, `href="`+random+`/versions"`, "!does not exist")
			contains(t, web.text(t, http.StatusNotFound, random+"/"+version+".md"), "]("+random+"/versions.md)")
		}
		contains(t, unescaped(web.text(t, http.StatusNotFound, random+"/9.9.9")), "9.9.9 of "+random[len("/mirror/"):]+" is not mirrored.")
	})
	t.Run("lists have no provider that waits", func(t *testing.T) {
		contains(t, web.text(t, http.StatusOK, "/mirror"), "!acme")
	})
	t.Run("a withdrawn version does not wait", func(t *testing.T) {
		p, err := registry.ParseMirrorProvider(random[len("/mirror/"):])
		if err != nil {
			t.Fatal(err)
		}
		w := registry.Withdrawal{At: published, By: "tests", Reason: "it has a key"}
		s.mirrored(p.String(), "1.4.0")
		if _, _, err := s.catalog.Mirror.Withdraw(t.Context(), p, number(t, "1.4.0"), w, false); err != nil {
			t.Fatal(err)
		}
		page := web.text(t, http.StatusOK, random+"/versions")
		if got := rowOf(t, page, "1.4.0"); !strings.HasPrefix(got, "1.4.0 withdrawn 2 Nov 2026 : it has a key") {
			t.Errorf("the row is %q", got)
		}
	})
}

// The banner names the next version that can be mirrored, and why it waits.
func TestMirroredBanner(t *testing.T) {
	t.Parallel()
	at := func(days int) time.Time { return published.AddDate(0, 0, days) }
	for name, test := range map[string]struct {
		rule           registry.MirrorRule
		version        string
		released, seen time.Time
		path           string
		parts          []string
	}{
		"after the release": {
			registry.MirrorRule{MinAge: 7 * 86400}, "2.0.0", at(9), at(9), random,
			[]string{"2.0.0 can be mirrored from 18 Nov 2026, 09:12 UTC.", "takes a version 7 days after its release", "!latest version"},
		},
		"rounded up to a minute": {
			registry.MirrorRule{MinAge: 7 * 86400}, "2.0.0", at(9).Add(14*time.Hour + 47*time.Minute + time.Second), at(9), random,
			[]string{"2.0.0 can be mirrored from 19 Nov 2026, 00:00 UTC.", "available 19 Nov", "from 19 Nov 2026, 00:00 UTC"},
		},
		"after first sight": {
			registry.MirrorRule{MinAge: 3600 * 36}, "2.0.0", at(1), at(9), random,
			[]string{"2.0.0 can be mirrored from 12 Nov 2026, 21:12 UTC.", "takes this version 36 hours after it first saw it"},
		},
		"without a time": {
			registry.MirrorRule{MinAge: 86400 * 2, WaitUnknown: true}, "2.0.0", time.Time{}, at(9), random,
			[]string{"2.0.0 can be mirrored from 13 Nov 2026, 09:12 UTC.", "takes this version 2 days after it first saw it", "age unknown"},
		},
		"on the page of an old version": {
			registry.MirrorRule{MinAge: 7 * 86400}, "2.0.0", at(9), at(9), random + "/1.0.0",
			[]string{"2.0.0 can be mirrored from", "Go to 1.2.0, the latest version"},
		},
		"an old version waits": {
			registry.MirrorRule{MinAge: 7 * 86400}, "1.1.1", at(9), at(9), random, []string{"!can be mirrored", "available 18 Nov"},
		},
		"a pre-release waits": {
			registry.MirrorRule{MinAge: 7 * 86400}, "2.0.0-rc.1", at(9), at(9), random, []string{"!can be mirrored", "available 18 Nov"},
		},
		"nothing waits": {
			registry.MirrorRule{MinAge: 86400}, "2.0.0", at(8), at(8), random, []string{"!can be mirrored", "!2.0.0"},
		},
		"the policy denies": {
			registry.MirrorRule{Deny: true, Reason: "we do not use it"}, "2.0.0", at(9), at(9), random,
			[]string{"!can be mirrored", "!2.0.0", "available", "The mirror takes no further versions.", "We do not use it.", "!line 1"},
		},
		"the policy denies without a reason": {
			registry.MirrorRule{Deny: true}, "2.0.0", at(9), at(9), random + "/versions",
			[]string{"The mirror takes no further versions. The mirror policy does not allow this provider.", "!line 1"},
		},
		"the end of time": {
			registry.MirrorRule{MinAge: 7 * 86400}, "2.0.0", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), at(9), random,
			[]string{
				"can be mirrored from 31 Dec 9999, 23:59 UTC.", "available 31 Dec 9999", "takes a version 7 days after its release",
				`datetime="9999-12-31"`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withProviders(t)
			s.now = func() time.Time { return at(10) }
			s.policy(test.rule)
			s.origin(random[len("/mirror/"):], func(o *registry.MirrorOrigin) {
				s.sees(o, "1.2.0", at(-30), at(-30))
				s.sees(o, test.version, test.released, test.seen)
			})
			web := s.serve()
			for _, suffix := range []string{"", ".md"} {
				for _, part := range test.parts {
					if part = strings.TrimSuffix(part, `"`); suffix == ".md" && strings.HasPrefix(part, "datetime") {
						continue
					}
					if suffix == ".md" && strings.HasPrefix(part, "Go to") {
						continue // the Markdown form has no links of banners
					}
					contains(t, web.text(t, http.StatusOK, test.path+suffix), part)
				}
			}
		})
	}
}

// A refused version needs the trust of an operator, unless the policy does not
// allow its key.
func TestMirroredRefused(t *testing.T) {
	t.Parallel()
	const key = "5F0E3C1B9A7D2468"
	for name, test := range map[string]struct {
		rule   registry.MirrorRule
		key    string
		reason string
	}{
		"another key":             {registry.MirrorRule{}, key, "signed by another key, " + key},
		"a key that is denied":    {registry.MirrorRule{SigningKeys: []string{"51852D87348FFC4C"}}, key, "the mirror policy does not allow its key, " + key},
		"a provider that is":      {registry.MirrorRule{Deny: true}, key, "signed by another key, " + key},
		"no signature":            {registry.MirrorRule{}, "", "not signed"},
		"a signature is required": {registry.MirrorRule{SigningKeys: []string{key}}, "", "not signed, but the mirror policy requires a key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withProviders(t)
			s.policy(test.rule)
			s.origin(random[len("/mirror/"):], func(o *registry.MirrorOrigin) {
				refused := registry.RefusedVersion{Version: number(t, "2.0.0")}
				if test.key != "" {
					refused.Key = originKey(test.key)
				}
				o.Refuse(refused)
			})
			web := s.serve()
			if got, want := rowOf(t, web.text(t, http.StatusOK, random), "2.0.0"), "2.0.0 refused "+test.reason+" – – –"; got != want {
				t.Errorf("the row is %q, want %q", got, want)
			}
			contains(t, web.text(t, http.StatusOK, random+".md"), "| 2.0.0 | refused, "+test.reason+" |")
		})
	}
}

// The page describes the key of an origin, and why it is trusted.
func TestMirroredKey(t *testing.T) {
	t.Parallel()
	const id, missing = "51852D87348FFC4C", "5F0E3C1B9A7D2468"
	fingerprint := strings.Repeat("A", 24) + id
	key := registry.OriginKey{ID: id, Fingerprint: fingerprint, Owner: "Ada <ada@example.com>", SeenAt: published}
	trusted := key
	trusted.Trusted = &registry.Decision{At: published, By: "token ops", Reason: "They announced it."}
	other := originKey(missing)
	for name, test := range map[string]struct {
		keys  []registry.OriginKey
		rule  registry.MirrorRule
		parts []string
	}{
		"one that is not trusted": {nil, registry.MirrorRule{}, []string{id, "!Fingerprint", "!Trusted"}},
		"the first one": {
			[]registry.OriginKey{key}, registry.MirrorRule{},
			[]string{fingerprint, "Ada &lt;ada@example.com&gt;", "First seen", "The first key of registry.opentofu.org"},
		},
		"a later one": {
			[]registry.OriginKey{other, trusted}, registry.MirrorRule{},
			[]string{fingerprint, "<dt>Trusted by</dt><dd>token ops</dd>", "They announced it.", "!The first key", "!" + missing},
		},
		"one that the policy names": {
			[]registry.OriginKey{other, key}, registry.MirrorRule{SigningKeys: []string{fingerprint}},
			[]string{"The mirror policy names it"},
		},
		"another one of the same ID": {
			[]registry.OriginKey{key, {ID: id, Fingerprint: strings.Repeat("B", 24) + id}}, registry.MirrorRule{},
			[]string{fingerprint, strings.Repeat("B", 24) + id},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withProviders(t)
			s.policy(test.rule)
			s.origin(random[len("/mirror/"):], func(o *registry.MirrorOrigin) { o.Keys = test.keys })
			contains(t, s.serve().text(t, http.StatusOK, random), test.parts...)
		})
	}
}

// A provider can have more versions than a page.
func TestMirroredVersions(t *testing.T) {
	t.Parallel()
	s := withOrigins(t)
	s.origin(random[len("/mirror/"):], func(o *registry.MirrorOrigin) {
		for i := range 100 {
			s.sees(o, fmt.Sprintf("2.0.%d", i), published.AddDate(0, 0, 9), published.AddDate(0, 0, 9))
		}
	})
	web := s.serve()
	contains(t, web.text(t, http.StatusOK, random), "All 108 versions", ">2.0.99<", ">2.0.90<", "!>2.0.89<", ">1.2.0</a></th>")
	first, rest := web.text(t, http.StatusOK, random+"/versions"), web.text(t, http.StatusOK, random+"/versions?after=100")
	contains(t, first, "1–100 of 108", ">2.0.0<", "!1.4.0", random+"/versions?after=100")
	contains(t, rest, "101–108 of 108", "1.4.0", ">1.2.0</a>", ">0.9.0<", "linux_amd64")
}

// What depends on a damaged policy or a damaged origin is missing. The page has
// the rest.
func TestMirroredDamaged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key   catalog.Key
		parts []string
	}{
		"the policy": {catalog.Key{Partition: "policy", Sort: "mirror"}, []string{"linux_amd64", "refused", "!1.4.0"}},
		"the origin": {catalog.Key{Partition: "mirror/providers", Sort: random[len("/mirror/"):]}, []string{"linux_amd64", "!refused", "!1.4.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withOrigins(t)
			item, err := s.table.Get(t.Context(), test.key)
			if err != nil {
				t.Fatal(err)
			}
			c := catalog.Change{Key: test.key, Revision: item.Revision, Data: []byte("x")}
			if err := s.table.Write(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			web := s.serve()
			for _, path := range []string{random, random + "/1.0.0", random + "/versions"} {
				contains(t, web.text(t, http.StatusOK, path), test.parts...)
			}
			contains(t, web.log.String(), test.key.Shown(), "damaged")
		})
	}
}

// A host block does not offer a version without the SHA256SUMS of its origin.
func TestMirroredWithoutSums(t *testing.T) {
	t.Parallel()
	s := withProviders(t)
	s.mirrored("registry.opentofu.org/acme/signed", "1.0.0")
	s.mirroredWith("registry.opentofu.org/acme/imported", "1.0.0", nil)
	pages := s.serve()
	contains(t, unescaped(pages.text(t, http.StatusOK, "/mirror/registry.opentofu.org/acme/signed/1.0.0")),
		`"providers.v1"`, "!network_mirror")
	contains(t, unescaped(pages.text(t, http.StatusOK, "/mirror/registry.opentofu.org/acme/imported/1.0.0")),
		"network_mirror", `!"providers.v1"`)
}
