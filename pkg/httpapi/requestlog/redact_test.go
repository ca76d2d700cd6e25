package requestlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Made-up secrets. No log may contain the second half of one.
const (
	someToken     = "larder_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2Yz3AbCdEfG12"
	someJWT       = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJodHRwczovL2EuZXhhbXBsZSJ9.c2lnbmF0dXJlLW9mLXRoaXM"
	someSignature = "5f1d7a84db00d2fce00b31a7fc73224fbb4cf9f2e2e2e2e2e2e2e2e2e2e2e2e2"
	someDigest    = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// leaks returns the first secret whose second half is in a text.
func leaks(text string, secrets ...string) string {
	for _, secret := range secrets {
		if strings.Contains(text, secret[len(secret)/2:]) {
			return secret
		}
	}
	return ""
}

// quoting serves the routes of a module, a mirror and an object, with an error
// that quotes the request.
func quoting() http.Handler {
	fail := func(_ http.ResponseWriter, r *http.Request) error {
		return fmt.Errorf("%w name %q", registry.ErrInvalid, r.PathValue("name")+r.PathValue("type")+r.PathValue("key"))
	}
	return httpapi.Mux(
		get("/v1/modules/{namespace}/{name}/{system}/{version}/download", fail),
		get("/v1/mirror/{hostname}/{namespace}/{type}/{document}", fail),
		get("/objects/{key...}", fail),
	)
}

func TestLogHasNoSecretOfPath(t *testing.T) {
	t.Parallel()
	const (
		object = "/objects/modules/acme/vpc/aws/1.0.0/" + someDigest
		file   = "/objects/providers/acme/x/1.0.0/" + someDigest + "/x.zip"
	)
	long := strings.Repeat("a1B2", 17)
	for _, test := range []struct {
		name, path string
		want       string // the path in the log
	}{
		{"root", "/", "/"},
		{"discovery", "/.well-known/terraform.json", "/.well-known/terraform.json"},
		{"module", "/v1/modules/acme/vpc/aws/1.0.0/download", "/v1/modules/acme/vpc/aws/1.0.0/download"},
		{"build metadata", "/v1/modules/acme/vpc/aws/1.0.0+a.b~c/download", "/v1/modules/acme/vpc/aws/1.0.0+a.b~c/download"},
		{"module archive", object + ".tar.gz", object + ".tar.gz"},
		{"provider file", file, file},
		{"longest name", "/v1/modules/" + long[:64] + "/vpc/aws", "/v1/modules/" + long[:64] + "/vpc/aws"},
		{"name like a token's beginning", "/v1/modules/acme/larder_network/aws", "/v1/modules/acme/larder_network/aws"},
		{"double slash", "/v1//modules", "/v1//modules"},
		{
			"encoded query", object + ".tar.gz?expires=1&signature=" + someSignature,
			"/objects/modules/acme/vpc/aws/1.0.0/" + someDigest[:8] + "…",
		},
		{
			"query encoded twice", object + ".tar.gz%3Fexpires=1&signature=" + someSignature,
			"/objects/modules/acme/vpc/aws/1.0.0/" + someDigest[:8] + "…",
		},
		{
			"parameters without a question mark", object + ".tar.gz&signature=" + someSignature,
			"/objects/modules/acme/vpc/aws/1.0.0/" + someDigest[:8] + "…",
		},
		{"parameter as a name", "/v1/signature=" + someSignature, "/v1/signature…"},
		{"presigned URL of S3", "/v1/?X-Amz-Credential=A/2/eu&X-Amz-Signature=" + someSignature, "/v1/…"},
		{"slash in a cut value", "/v1/?X-Amz-Security-Token=a/" + someToken + "/b", "/v1/…"},
		{"token as namespace", "/v1/modules/" + someToken + "/vpc/aws/1.0.0/download", "/v1/modules/larder_…"},
		{"token as name", "/v1/modules/acme/" + someToken + "/aws/1.0.0/download", "/v1/modules/acme/larder_…"},
		{"token as version", "/v1/modules/acme/vpc/aws/" + someToken + "/download", "/v1/modules/acme/vpc/aws/larder_…"},
		{"token as host", "/v1/mirror/" + someToken + "/acme/x/index.json", "/v1/mirror/larder_…"},
		{"token in an object key", "/objects/" + someToken, "/objects/larder_…"},
		{"token behind a name", "/v1/modules/acme-" + someToken, "/v1/modules/acme-larder_…"},
		{"token in capitals", "/v1/modules/" + strings.ToUpper(someToken), "/v1/modules/LARDER_…"},
		{"token twice", "/" + someToken + "/" + someToken, "/larder_…"},
		{"token cut short", "/v1/" + someToken[:len(someToken)-12], "/v1/larder_…"},
		{"token encoded", "/v1/" + strings.Replace(someToken, "_", "%5F", 1), "/v1/larder…"},
		{"token at the root", "/" + someToken, "/larder_…"},
		{"token with a header's name", "/v1/Authorization: Bearer " + someToken, "/v1/Authorization…"},
		{"JWT as name", "/v1/modules/acme/" + someJWT + "/aws/1.0.0/download", "/v1/modules/acme/eyJ…"},
		{"JWT at the root", "/" + someJWT, "/eyJ…"},
		{"claims alone", "/v1/" + strings.Split(someJWT, ".")[1], "/v1/eyJ…"},
		{"JWT behind a name", "/v1/x-" + someJWT[:60], "/v1/x-eyJ…"},
		{"too long", "/v1/" + long, "/v1/" + long[:8] + "…"},
		{"too long behind a digest", "/objects/" + someDigest + long, "/objects/" + someDigest[:8] + "…"},
		{"digest on no route", "/" + someDigest, "/" + someDigest[:8] + "…"},
		{"not ASCII", "/v1/ä" + someSignature, "/v1/…"},
		{"line break", "/v1/a\n" + someSignature, "/v1/a…"},
		{"semicolon", "/v1/a;signature=" + someSignature, "/v1/a…"},
		{"no slash", someToken, "larder_…"},
		{"asterisk", "*", "…"},
		{"many short segments", strings.Repeat("/abc", 1000), strings.Repeat("/abc", 256) + "…"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// A question mark here was encoded in the URL; serve would split
			// the path there.
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.URL.Path = test.path
			var log bytes.Buffer
			replace := func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == "path" && a.Value.String() != test.want {
					t.Errorf("logged path %q, want %q", a.Value, test.want)
				}
				return a
			}
			logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{ReplaceAttr: replace}))
			httpapi.Wrap(logger, quoting()).ServeHTTP(httptest.NewRecorder(), r)
			if secret := leaks(log.String(), someToken, strings.ToUpper(someToken), someJWT, someSignature); secret != "" {
				t.Errorf("%s is in the log: %s", secret, &log)
			}
		})
	}
}

func TestLogHasNoSecretOfError(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"nothing secret", `cannot read "modules/acme/vpc": no such item`, `cannot read "modules/acme/vpc": no such item`},
		{"digest", "object " + someDigest + " is missing", "object " + someDigest + " is missing"},
		{
			"names like secrets", "module acme/moneyJar-production/larder_network, signature: 7 bytes",
			"module acme/moneyJar-production/larder_network, signature: 7 bytes",
		},
		{"token", "invalid name " + someToken + ": too long", "invalid name larder_…: too long"},
		{"quoted token", fmt.Sprintf("invalid name %.60q", someToken+"/x"), `invalid name "larder_…/x"`},
		{"escaped token", "/v1/" + strings.Replace(someToken, "_", "%5f", 1), "/v1/larder%5f…"},
		{"token behind one", "larder_" + strings.Repeat("x", 30) + someToken, "larder_…"},
		{"JWT", "bad credential: " + someJWT + " has expired", "bad credential: eyJ… has expired"},
		{"beginning of a JWT", fmt.Sprintf("bad %.60q", someJWT), `bad "eyJ…"`},
		{
			"S3's URL",
			`Get "https://a.example/k?X-Amz-Algorithm=B&X-Amz-Credential=AK/1/s3&X-Amz-Signature=` + someSignature +
				`": refused`,
			`Get "https://a.example/k?X-Amz-Algorithm=…&X-Amz-Credential=…&X-Amz-Signature=…": refused`,
		},
		{"session token", "x-amz-security-token=a/" + someSignature + "&b=c", "x-amz-security-token=…&b=c"},
		{"own URL", "/objects/a?expires=5&signature=" + someSignature, "/objects/a?expires=5&signature=…"},
		{"escaped URL", "a%3Fexpires%3D5%26signature%3D" + someSignature, "a%3Fexpires%3D5%26signature%3D…"},
		{"token as a parameter", "/v1?access_token=" + someSignature, "/v1?access_token=…"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := httpapi.Mux(get("/x", func(http.ResponseWriter, *http.Request) error { return errors.New(test.text) }))
			var log bytes.Buffer
			replace := func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == "error" && a.Value.String() != test.want {
					t.Errorf("logged error %q, want %q", a.Value, test.want)
				}
				return a
			}
			logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{ReplaceAttr: replace}))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil)
			httpapi.Wrap(logger, h).ServeHTTP(httptest.NewRecorder(), r)
			if secret := leaks(log.String(), someToken, someJWT, someSignature); secret != "" {
				t.Errorf("%s is in the log: %s", secret, &log)
			}
		})
	}
}

// A method may be any word, and a caller's name may be any claim.
func TestLogHasNoSecretOfMethodOrCaller(t *testing.T) {
	t.Parallel()
	h := httpapi.Mux(get("/x", func(_ http.ResponseWriter, r *http.Request) error {
		requestlog.From(r.Context()).Caller = "token " + someToken
		return nil
	}))
	for _, method := range []string{someToken, http.MethodGet} {
		var log bytes.Buffer
		httpapi.Wrap(textLog(&log), h).ServeHTTP(httptest.NewRecorder(), request(t.Context(), method, "/x"))
		if leaks(log.String(), someToken) != "" || !strings.Contains(log.String(), "larder_…") {
			t.Errorf("%s: logged %s", method, &log)
		}
	}
}

// Tokens, JWTs and signatures in a path or an error are not logged, whatever
// surrounds them.
func FuzzLogHasNoSecret(f *testing.F) {
	for _, seed := range []struct{ before, after string }{
		{"", ""},
		{"/v1/modules/", "/vpc/aws/1.0.0/download"},
		{"/v1/modules/acme/vpc/aws/", "/download"},
		{"/v1/mirror/", "/acme/x/index.json"},
		{"/objects/a.tar.gz?expires=1&signature=", "&x=y"},
		{"/larder_", "larder_"},
		{"/larder_0123456789012345678901234567890123456789", "."},
		{"/eyJ", "eyJ"},
		{"/eyJ0123456789012345.", "-"},
		{"/a%5", "F"},
		{"/signature=", "/"},
		{"/ä", "\xff"},
	} {
		f.Add(seed.before, seed.after)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		secrets := []string{someToken, someJWT, "larder%5F" + someToken[len("larder_"):]}
		for _, name := range []string{"signature=", "X-Amz-Signature=", "x-amz-security-token="} {
			secrets = append(secrets, name+someSignature)
		}
		for _, secret := range secrets {
			text := before + secret + after
			if leaks(before+after, secret) != "" {
				return
			}
			var log bytes.Buffer
			fail := func(w http.ResponseWriter, r *http.Request) { httpapi.Error(w, r, errors.New(text)) }
			h := httpapi.Wrap(slog.New(slog.NewTextHandler(&log, nil)), http.HandlerFunc(fail))
			for _, path := range []string{"/", text, "/" + text} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
				r.URL.Path = path
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			if leaks(log.String(), secret) != "" {
				t.Errorf("%q is in the log: %s", secret, &log)
			}
		}
	})
}
