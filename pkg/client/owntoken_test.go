package client_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// The token of a variable for one host comes after a TF_TOKEN_… variable and before
// all other credentials.
func TestUseToken(t *testing.T) {
	t.Parallel()
	job := "LARDER_ID_TOKEN=" + jwt(`{"aud": "https://registry.example.com"}`)
	for name, test := range map[string]struct {
		environ []string
		token   string
		only    bool
		want    string
	}{
		"alone":                           {nil, " own\n", false, "own"},
		"none":                            {[]string{job}, "", false, strings.TrimPrefix(job, "LARDER_ID_TOKEN=")},
		"beside the host's variable":      {[]string{"TF_TOKEN_registry_example_com=x"}, "own", false, "x"},
		"beside its empty variable":       {[]string{"TF_TOKEN_registry_example_com="}, "own", false, ""},
		"beside another host's variable":  {[]string{"TF_TOKEN_other_example_com=x"}, "own", false, "own"},
		"beside a file":                   {[]string{"TF_CLI_CONFIG_FILE=testdata/token.tfrc"}, "own", false, "own"},
		"beside a job's identity":         {[]string{job}, "own", false, "own"},
		"if only a job's identity counts": {[]string{job}, "own", true, strings.TrimPrefix(job, "LARDER_ID_TOKEN=")},
	} {
		config := load(t, test.environ...)
		if err := config.UseToken("Registry.example.com:443", "LARDER_TOKEN", test.token); err != nil {
			t.Fatal(err)
		}
		if err := config.UseIdentity(test.environ, host, client.Identity{Only: test.only}); err != nil {
			t.Fatal(err)
		}
		if got := token(t, config, host); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if got := token(t, config, "sub.registry.example.com"); got != "" {
			t.Errorf("%s: %q for another host", name, got)
		}
	}
}

// The token of a variable for one host is sent to no other host and not over http,
// whatever the host's discovery document names.
func TestOwnTokenStays(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		base string
		err  error
	}{
		"path":            {"/v1/", nil},
		"same host":       {"https://registry.example.com:443/v1/", nil},
		"subdomain":       {"https://sub.registry.example.com/v1/", registry.ErrInvalid},
		"another port":    {"https://registry.example.com:8443/v1/", registry.ErrInvalid},
		"another host":    {"https://elsewhere.example.com/v1/", registry.ErrInvalid},
		"http":            {"http://registry.example.com/v1/", registry.ErrInvalid},
		"http, this host": {"http://127.0.0.1/v1/", registry.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Authorization"); got != "Bearer "+secret || strings.TrimSuffix(r.Host, ":443") != host || r.TLS == nil {
					t.Errorf("%s%s has %q", r.Host, r.URL, got)
				}
				if strings.HasSuffix(r.URL.Path, "terraform.json") {
					document(`{"providers.v1":"`+test.base+`"}`)(rw, r)
					return
				}
				answerJSON(rw, 200, `{}`)
			})
			config := load(t)
			if err := config.UseToken(host, "LARDER_TOKEN", secret); err != nil {
				t.Fatal(err)
			}
			service, err := client.New(config, "larder/test", w.transport).Service(t.Context(), host, "providers.v1")
			if err == nil {
				_, err = service.GetJSON(t.Context(), "x", new(any))
			}
			check(t, texts, err, test.err)
			if service == nil {
				return
			}
			err = service.Download(t.Context(), service.URL.String()+"y.zip", new(bytes.Buffer), 100, nil)
			if !errors.Is(err, test.err) {
				t.Errorf("download: %v, want %v", err, test.err)
			}
		})
	}
}

// If no credential was found, the error names the host, and the hint the variable.
func TestNoCredential(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		answerJSON(rw, 401, `{"errors":["authentication required"],"code":"unauthenticated"}`)
	})
	config := load(t)
	if err := config.UseToken(host, "LARDER_TOKEN", ""); err != nil {
		t.Fatal(err)
	}
	c := client.New(config, "larder/test", w.transport)
	for name, base := range map[string]string{"the host": "https://" + host + "/v1", "another host": "https://other.example.com/v1"} {
		t.Run(name, func(t *testing.T) {
			_, err := serviceAt(t, c, base).GetJSON(t.Context(), "x", new(any))
			check(t, texts, err, registry.ErrUnauthenticated)
		})
	}
}
