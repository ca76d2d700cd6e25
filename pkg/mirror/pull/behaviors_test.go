package pull_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/registry"
)

// behavior is a row of the tables of [TestOrigins].
type behavior struct {
	name string
	// network means that the origin has an address, which the policy must allow.
	// Otherwise there is no network, and the time is that of a bubble.
	network bool
	// prepare changes the origin or the policy before the first request.
	prepare func(*testing.T, *testRegistry)
	// first makes requests before those of the table.
	first func(*testing.T, *testRegistry)
	// between changes something between the request for index.json and the one
	// for the version.
	between func(*testing.T, *testRegistry)
	// then changes something before the later requests.
	then func(*testing.T, *testRegistry)
}

// inside is an address in a private network that no policy of the tests allows.
const inside = "https://10.99.99.99/secret"

// on makes the origin answer with a page at paths.
func on(page http.HandlerFunc, paths ...string) func(*testing.T, *testRegistry) {
	return func(_ *testing.T, r *testRegistry) {
		for _, path := range paths {
			r.set(path, page)
		}
	}
}

// changed changes what the origin answers at paths, or at all paths.
func changed(change func(http.HandlerFunc) http.HandlerFunc, paths ...string) func(*testing.T, *testRegistry) {
	return func(_ *testing.T, r *testRegistry) { r.each(change, paths...) }
}

// always replaces every page.
func always(page http.HandlerFunc) func(*testing.T, *testRegistry) {
	return changed(func(http.HandlerFunc) http.HandlerFunc { return page })
}

// has makes the origin list versions.
func has(offered release, versions ...string) func(*testing.T, *testRegistry) {
	return func(t *testing.T, r *testRegistry) { r.offer(t, offered, versions...) }
}

// healthy repairs the origin, and lets two minutes pass.
func healthy(t *testing.T, r *testRegistry) {
	r.set(discoveryPath, jsonPage(map[string]any{"providers.v1": "/v1/providers/"}))
	r.offer(t, release{}, "1.0.0", "1.1.0")
	r.expire(t, 2*time.Minute)
}

// mirrored makes the mirror copy 1.1.0 before.
func mirrored(t *testing.T, r *testRegistry) {
	r.index(t)
	r.version(t, "1.1.0")
	r.local.Wait()
}

// minutes lets time pass.
func minutes(n int) func(*testing.T, *testRegistry) {
	return func(t *testing.T, r *testRegistry) { r.expire(t, time.Duration(n)*time.Minute) }
}

// inOrder does one thing after the other.
func inOrder(all ...func(*testing.T, *testRegistry)) func(*testing.T, *testRegistry) {
	return func(t *testing.T, r *testRegistry) {
		for _, f := range all {
			f(t, r)
		}
	}
}

// hanging makes paths of the origin hang.
func hanging(paths ...string) func(*testing.T, *testRegistry) {
	return func(_ *testing.T, r *testRegistry) {
		for _, path := range paths {
			r.set(path, hang)
		}
	}
}

func tableBreaks(_ *testing.T, r *testRegistry) {
	r.broken = true
	r.table.Down.Store(true)
}

func workerBreaks(_ *testing.T, r *testRegistry) {
	r.broken = true
	r.pulling.Worker = brokenWorker{}
}

func withdraw(t *testing.T, r *testRegistry) {
	v, err := registry.ParseVersion("1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	why := registry.Withdrawal{At: time.Now().UTC(), By: "somebody", Reason: "it leaks"}
	if _, _, err := r.catalog.Mirror.Withdraw(context.WithoutCancel(t.Context()), inventory, v, why, false); err != nil {
		t.Fatal(err)
	}
}

func slow(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Second):
		}
		page(w, r)
	}
}

// typed changes the Content-Type.
func typed(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { page(retyped{w}, r) }
}

type retyped struct{ http.ResponseWriter }

func (r retyped) Write(b []byte) (int, error) {
	r.Header().Set("Content-Type", "text/html")
	return r.ResponseWriter.Write(b)
}

// brotli claims that a document is compressed with an encoding that the mirror
// does not request.
func brotli(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = w.Write([]byte{0x0b, 0x02, 0x80, 0x7b, 0x7d, 0x03})
	}
}

// many lists n versions.
func many(n int) func(*testing.T, *testRegistry) {
	return func(t *testing.T, r *testRegistry) {
		r.offer(t, release{}, "1.0.0", "1.1.0")
		versions := []any{
			map[string]any{"version": "1.0.0", "platforms": []any{}}, map[string]any{"version": "1.1.0", "platforms": []any{}},
		}
		for i := range n {
			digest := providerfiles.Sum([]byte(fmt.Sprint(i)))
			v := fmt.Sprintf("0.%d.0-x%s%s", i, digest, digest[:40])
			versions = append(versions, map[string]any{"version": v, "platforms": []any{}})
			r.released[v] = true
		}
		r.set(versionsPath, jsonPage(map[string]any{"versions": versions}))
	}
}

// signed makes the origin sign the URLs of packages. Each ends after a time, which
// is visible or not.
func signed(after time.Duration, visible bool) func(*testing.T, *testRegistry) {
	return signedBy("Signature", after, visible)
}

// signedBy is like signed, with the signature in a parameter.
func signedBy(parameter string, after time.Duration, visible bool) func(*testing.T, *testRegistry) {
	return func(t *testing.T, r *testRegistry) {
		var mu sync.Mutex
		ends := make(map[string]time.Time)
		for _, platform := range both {
			describe, zip := r.page(descriptionPath(platform)), r.page(zipPath(platform))
			r.set(descriptionPath(platform), func(w http.ResponseWriter, q *http.Request) {
				whole := httptest.NewRecorder()
				describe(whole, q)
				var description map[string]any
				if err := json.Unmarshal(whole.Body.Bytes(), &description); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				id, end := strconv.Itoa(len(ends)), time.Now().Add(after)
				ends[id] = end
				query := url.Values{parameter: {id}}
				if visible {
					query.Set("Expires", strconv.FormatInt(end.Unix(), 10))
				}
				description["download_url"] = zipPath(platform) + "?" + query.Encode()
				jsonPage(description)(w, q)
			})
			r.set(zipPath(platform), func(w http.ResponseWriter, q *http.Request) {
				mu.Lock()
				end := ends[q.FormValue(parameter)]
				mu.Unlock()
				if time.Now().After(end) {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				zip(w, q)
			})
		}
	}
}

// spent leaves no room for a version in the budget, so that it is never copied.
func spent(_ *testing.T, r *testRegistry) { r.policy.Budget.Packages = 1 }

// pass lets time pass, also for the origin.
func pass(d time.Duration) func(*testing.T, *testRegistry) {
	return func(*testing.T, *testRegistry) { time.Sleep(d) }
}

func rule(change func(*registry.MirrorRule)) func(*testing.T, *testRegistry) {
	return func(_ *testing.T, r *testRegistry) { change(r.rule()) }
}

var behaviors = []behavior{
	{name: "is healthy", network: true},
	{name: "is slow", prepare: changed(slow)},
	{name: "hangs", prepare: hanging(discoveryPath)},
	{name: "hangs, and is healthy after two minutes", prepare: hanging(versionsPath), then: healthy},
	{name: "hangs when a package is described", between: hanging(descriptionPath(linux))},
	{name: "hangs at SHA256SUMS", between: hanging(sumsPath)},
	{name: "hangs after it has listed the versions", then: inOrder(hanging(versionsPath), minutes(11))},
	{name: "answers 429 with Retry-After: 30", prepare: always(status(http.StatusTooManyRequests, "Retry-After", "30"))},
	{name: "answers 500", prepare: always(status(http.StatusInternalServerError))},
	{name: "answers 500 for the packages", prepare: on(status(http.StatusInternalServerError), zipPath(linux))},
	{name: "answers 503, and is healthy after two minutes",
		prepare: on(status(http.StatusServiceUnavailable), versionsPath), then: healthy},
	{name: "breaks off in the list of versions", prepare: changed(breakOff, versionsPath)},
	{name: "breaks off in SHA256SUMS", prepare: changed(breakOff, sumsPath)},
	{name: "breaks off in the signature", prepare: changed(breakOff, signaturePath)},
	{name: "breaks off in a package", prepare: changed(breakOff, zipPath(linux))},
	{name: "names no signing keys", prepare: has(release{keyless: true}, "1.0.0", "1.1.0")},
	{name: "has no signature", prepare: on(http.NotFound, signaturePath)},
	{name: "sends the signature of another file", prepare: on(filePage([]byte("-")), signaturePath)},
	{name: "offers the signed files of another version", between: func(_ *testing.T, r *testRegistry) {
		for _, platform := range both {
			other := r.page(strings.ReplaceAll(descriptionPath(platform), "1.1.0", "1.0.0"))
			r.set(descriptionPath(platform), other)
		}
	}},
	{name: "lacks one of two platforms", prepare: has(release{platforms: []string{linux}}, "1.0.0", "1.1.0")},
	{name: "lists a platform that is 404", prepare: on(http.NotFound, descriptionPath(darwin))},
	{name: "lacks all platforms of the policy",
		prepare: has(release{platforms: []string{"windows_386"}}, "1.0.0", "1.1.0")},
	{name: "has changed its key", first: func(t *testing.T, r *testRegistry) {
		r.index(t)
		r.version(t, "1.0.0")
		r.local.Wait()
		has(release{key: stranger}, "1.0.0", "1.1.0")(t, r)
	}, then: minutes(11)},
	{name: "signs with a key that the policy does not name", prepare: rule(func(r *registry.MirrorRule) {
		r.SigningKeys = []string{"0123456789ABCDEF"}
	}), then: minutes(11)},
	{name: "sends other bytes than SHA256SUMS has", prepare: has(release{wrongDigest: true}, "1.0.0", "1.1.0")},
	{name: "sends other bytes until an operator sets the same policy again",
		prepare: has(release{wrongDigest: true}, "1.0.0", "1.1.0"),
		then: func(t *testing.T, r *testRegistry) {
			has(release{}, "1.0.0", "1.1.0")(t, r)
			if changed, err := r.catalog.SetMirrorPolicy(t.Context(), r.policy, ""); changed || err != nil {
				t.Fatalf("changed is %t, %v", changed, err)
			}
			r.ahead.Add(int64(time.Minute)) // until the worker reads it
		}},
	{name: "has changed the bytes of a mirrored version",
		prepare: has(release{platforms: []string{linux}}, "1.0.0", "1.1.0"),
		first:   inOrder(mirrored, has(release{content: " changed"}, "1.0.0", "1.1.0"), minutes(11))},
	{name: "has gained a platform of a mirrored version",
		prepare: has(release{platforms: []string{linux}}, "1.0.0", "1.1.0"),
		first:   inOrder(mirrored, has(release{}, "1.0.0", "1.1.0"), minutes(11))},
	{name: "lists a version that is 404", prepare: on(http.NotFound, descriptionPath(linux), descriptionPath(darwin))},
	{name: "has listed a new version for two minutes", prepare: has(release{}, "1.0.0"),
		between: inOrder(has(release{}, "1.0.0", "1.1.0"), minutes(2))},
	{name: "does not list the version", prepare: has(release{}, "1.0.0")},
	{name: "lists no version", prepare: has(release{})},
	{name: "does not have the provider", prepare: on(http.NotFound, versionsPath)},
	{name: "offers no providers", prepare: on(jsonPage(map[string]any{}), discoveryPath)},
	{name: "redirects discovery to a private address", network: true, prepare: on(redirect, discoveryPath)},
	{name: "redirects the list of versions to a private address", network: true, prepare: on(redirect, versionsPath)},
	{name: "redirects a description to a private address", network: true, prepare: on(redirect, descriptionPath(linux))},
	{name: "redirects SHA256SUMS to a private address", network: true, prepare: on(redirect, sumsPath)},
	{name: "redirects the signature to a private address", network: true, prepare: on(redirect, signaturePath)},
	{name: "redirects a package to a private address", network: true, prepare: on(redirect, zipPath(linux))},
	{name: "has a private address that the policy does not allow", network: true,
		prepare: rule(func(r *registry.MirrorRule) { r.Networks = nil })},
	{name: "compresses documents when requested", prepare: changed(compress(false))},
	{name: "compresses documents without a request for that", prepare: changed(brotli, versionsPath)},
	{name: "compresses SHA256SUMS without a request for that", prepare: changed(compress(true), sumsPath)},
	{name: "compresses a package without a request for that", prepare: changed(compress(true), zipPath(linux))},
	{name: "needs a credential (401)", prepare: on(status(http.StatusUnauthorized), versionsPath)},
	{name: "denies access (403)", prepare: on(status(http.StatusForbidden), versionsPath)},
	{name: "needs a credential for packages", prepare: on(status(http.StatusUnauthorized), zipPath(linux))},
	{name: "sends invalid JSON", prepare: on(filePage([]byte(`{"versions":[`)), versionsPath)},
	{name: "sends a web page as discovery document", prepare: on(filePage([]byte("<html>")), discoveryPath)},
	{name: "sends documents as text/html", prepare: changed(typed, versionsPath, descriptionPath(linux), sumsPath)},
	{name: "lists 1,500 versions with long names", prepare: many(1_500)},
	{name: "lists more than 8 MiB of versions", prepare: on(filePage(bytes.Repeat([]byte(" "), 9<<20)), versionsPath)},
	{name: "has a version that is too new", prepare: inOrder(
		has(release{published: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}, "1.0.0", "1.1.0"),
		rule(func(r *registry.MirrorRule) { r.MinAge = 7 * 24 * 60 * 60 }))},
	{name: "answers 500 for the publication time", prepare: inOrder(
		on(status(http.StatusInternalServerError), "/v1/providers/acme/inventory/1.1.0",
			"/v1/providers/acme/inventory/1.0.0"),
		rule(func(r *registry.MirrorRule) { r.MinAge = 7 * 24 * 60 * 60 }))},
	{name: "has a version that an operator has withdrawn", first: inOrder(mirrored, withdraw), then: minutes(11)},
	{name: "is down, and an operator has withdrawn the version",
		first: inOrder(mirrored, withdraw, always(down), minutes(11))},
	{name: "has a provider that the policy denies", prepare: rule(func(r *registry.MirrorRule) {
		*r = registry.MirrorRule{Pattern: "*/*/*", Line: 1, Deny: true}
	})},
	{name: "supports other plugin protocols", prepare: has(release{protocol: "4.0"}, "1.0.0", "1.1.0")},
	{name: "has a package that is too large", prepare: rule(func(r *registry.MirrorRule) { r.MaxSize = 100 })},
	{name: "has packages without a provider", prepare: has(release{noProvider: true}, "1.0.0", "1.1.0")},
	{name: "gives out URLs that end after 5 seconds", prepare: signed(5*time.Second, true)},
	{name: "gives out URLs that end after 5 seconds, and the budget is spent",
		prepare: inOrder(spent, signed(5*time.Second, true)), then: pass(35 * time.Second)},
	{name: "gives out URLs that end after 30 seconds, and the budget is spent",
		prepare: inOrder(spent, signed(30*time.Second, true)), then: pass(35 * time.Second)},
	{name: "gives out URLs that end after an unknown time, and the budget is spent",
		prepare: inOrder(spent, signed(5*time.Second, false)), then: pass(35 * time.Second)},
	{name: "gives out URLs with another query that end, and the budget is spent",
		prepare: inOrder(spent, signedBy("key", 5*time.Second, false)), then: pass(10 * time.Second)},
	{name: "is down", prepare: always(down)},
	{name: "is down, and its versions were read before", first: func(t *testing.T, r *testRegistry) {
		r.index(t)
		always(down)(t, r)
		r.expire(t, 11*time.Minute)
	}},
	{name: "is down, and the version is mirrored", first: inOrder(mirrored, always(down), minutes(11))},
	{name: "is healthy, and the table of this registry fails", prepare: func(_ *testing.T, r *testRegistry) { r.broken = true },
		first: func(t *testing.T, r *testRegistry) { mirrored(t, r); tableBreaks(t, r) }},
	{name: "is healthy, and the worker fails", prepare: workerBreaks},
	{name: "is healthy, and the worker fails after a look at the versions", first: func(t *testing.T, r *testRegistry) {
		r.index(t)
		workerBreaks(t, r)
		r.expire(t, 11*time.Minute)
	}},
	{name: "is healthy, and the worker fails when the version is mirrored",
		first: inOrder(mirrored, workerBreaks, minutes(11))},
}

var _ mirror.Worker = brokenWorker{}
