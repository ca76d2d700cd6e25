package functions_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// project publishes the modules and mirrors the providers of
// [clients.InitRequests]. It returns the configuration that uses them.
func (d deployed) project(t *testing.T) (configuration string) {
	t.Helper()
	var text, required strings.Builder
	for i := range clients.InitModules {
		name := fmt.Sprintf("acme/m%d/null", i)
		d.publish(t, name, "1.0.0", "")
		fmt.Fprintf(&text, "module \"m%d\" {\n  source  = \"%s/%s\"\n  version = \"1.0.0\"\n}\n", i, d.gateway.Host, name)
	}
	key := d.signer(t)
	for i := range clients.InitProviders {
		name := fmt.Sprintf("p%d", i)
		address := registry.Provider{Namespace: "acme", Type: name}
		dir := writeReleaseOf(t, key, name, "1.0.0", map[string]int64{clients.Platform(): 1000})
		published, err := d.publisher.Provider(t.Context(), rules.Provider{Dir: dir, Address: address})
		if err != nil {
			t.Fatal(err)
		}
		var packages []publish.MirrorPackage
		for _, pkg := range published.Record.Packages {
			packages = append(packages, publish.MirrorPackage{
				ProviderPackage: pkg, SigningKey: published.Record.SigningKey, Path: filepath.Join(dir, pkg.Filename),
			})
		}
		mirrored := registry.MirrorAddress{Hostname: "registry.example.com", Namespace: address.Namespace, Name: address.Type}
		if _, _, err := d.publisher.Mirror(t.Context(), mirrored, published.Record.Version, packages); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&required, "    %s = { source = %q }\n", name, mirrored)
	}
	return fmt.Sprintf("%sterraform {\n  required_providers {\n%s  }\n}\n", &text, &required)
}

// init runs an init of a configuration in a folder of its own.
func (d deployed) init(ctx context.Context, c clients.Client, home, configuration string) (output string, err error) {
	work := filepath.Join(home, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(work, "main.tf"), []byte(configuration), 0o600); err != nil {
		return "", err
	}
	s := clients.Session{Client: c, Home: home, CAFile: d.caFile, Config: fmt.Sprintf(`credentials %q {
  token = %q
}
provider_installation {
  network_mirror {
    url = "https://%s/v1/mirror/"
  }
}
`, d.gateway.Host, d.token, d.gateway.Host)}
	return s.Run(ctx, work, "init")
}

// The real clients send the requests by which the stack's throttle was chosen.
func TestInitRequests(t *testing.T) {
	t.Parallel()
	clients.Each(t, func(t *testing.T, c clients.Client) {
		d := deploy(t) // only of this client, to count its requests
		configuration := d.project(t)
		before := len(d.gateway.Requests())
		if out, err := d.init(t.Context(), c, t.TempDir(), configuration); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := make(map[string]int)
		for _, request := range d.gateway.Requests()[before:] {
			got[strings.TrimPrefix(request, "GET ANY ")]++
		}
		if diff := cmp.Diff(clients.InitRequests, got); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// If discovery is refused once, an init ends. The answer is that of API Gateway,
// without Retry-After.
func TestThrottledInit(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.gateway = lambda.StartThrottledGateway(routes(d.functions), &lambda.Throttle{Default: lambda.Limit{Burst: 0.5}})
	t.Cleanup(d.gateway.Close)
	configuration := d.project(t)
	response, body := d.get(t, "/v1/modules/acme/m0/null/versions")
	if got := fmt.Sprint(response.StatusCode, " ", strings.TrimSpace(body)); got != `429 {"message":"Too Many Requests"}` {
		t.Errorf("%s", got)
	}
	if after := response.Header.Get("Retry-After"); after != "" {
		t.Errorf("Retry-After is %s", after)
	}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		out, err := d.init(t.Context(), c, t.TempDir(), configuration)
		if err == nil || !strings.Contains(out, "429 Too") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
