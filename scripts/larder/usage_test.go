package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage/daily"
)

// A server counts downloads. After it ends, `larder usage` has all of them.
func TestUsageOfFolder(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	data := filepath.Join(t.TempDir(), "data")
	s := serve(t, data)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("x"))
	publishModule(t, data, "acme/vpc/aws", "1.1.0", withOutput("y"))
	for _, version := range []string{"1.0.0", "1.0.0", "1.0", "1.1.0"} {
		s.get(t, "/v1/modules/acme/vpc/aws/"+version+"/download")
	}
	s.get(t, "/v1/modules/acme/vpc/aws/versions")
	s.stop(t)
	larder(t, "withdraw", "acme/vpc/aws", "1.1.0", "--reason", "a key", "--yes", "--store", data)

	download := func(minor uint64, count int64) listedDownload {
		return listedDownload{
			Path: "modules/acme/vpc/aws", Address: "acme/vpc/aws", Version: registry.Version{Major: 1, Minor: minor},
			Count: count,
		}
	}
	for _, test := range []struct {
		name string
		args []string
		want []listedDownload
	}{
		{"all", nil, []listedDownload{download(0, 3), download(1, 1)}},
		{"address", []string{"acme/vpc/aws"}, []listedDownload{download(0, 3), download(1, 1)}},
		{"withdrawn version", []string{"acme/vpc/aws", "1.1.0"}, []listedDownload{download(1, 1)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got usageView
			out := larder(t, append([]string{"usage", "--json", "--store", data}, test.args...)...)
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Downloads, cmpopts.IgnoreFields(listedDownload{}, "Last")); diff != "" {
				t.Errorf("downloads (-want +got):\n%s", diff)
			}
			if got.LogRetentionDays != 90 {
				t.Errorf("log_retention_days is %d, want 90", got.LogRetentionDays)
			}
			if time.Since(got.From) > time.Hour {
				t.Errorf("the counts begin at %s, but the server started just now", got.From)
			}
		})
	}
	t.Run("text", func(t *testing.T) {
		t.Parallel()
		texts.Text(t, steady(larder(t, "usage", "acme/vpc/aws", "--store", data)))
	})
}

// usage counts the downloads of a deployed registry in its request log.
func TestUsageOfStack(t *testing.T) {
	t.Parallel()
	env := onStack(t, downloaded(time.Hour, "1.0.0", "ci"), downloaded(2*time.Hour, "1.0.0", "ci"),
		downloaded(time.Hour, "1.0.0", "ada"), downloaded(time.Hour, "1.1.0", "ci"))
	env["LARDER_STORE"] = "stack:larder"
	dir := t.TempDir()
	writeFiles(t, dir, withOutput("x"))
	for _, version := range []string{"acme/vpc/aws 1.0.0", "acme/vpc/aws 1.1.0", "acme/dns/aws 1.0.0"} {
		args := append([]string{"publish", "module", dir}, strings.Fields(version)...)
		if out, err := withEnv(t, env, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	texts := golden.New(t)
	for _, args := range [][]string{
		{"usage"}, {"usage", "acme/vpc/aws", "1.0.0", "--since", "90d"}, {"usage", "acme/vpc/aws", "1.2.0"},
		{"usage", "acme/dns/aws"}, {"usage", "acme/vpc/azure"}, {"usage", "registry.example.com/acme/dns"},
	} {
		out, _ := withEnv(t, env, args...).CombinedOutput() // some fail
		texts.Text(t, "$ larder "+quotedAll(args)+"\n"+steady(string(out)))
	}
}

// A server works without its counts.
func TestServeWithDamagedUsage(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	larder(t, "init", "--store", data)
	if err := os.WriteFile(filepath.Join(data, daily.Name), []byte(strings.Repeat("x", 8192)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, data)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("x"))
	s.get(t, "/v1/modules/acme/vpc/aws/1.0.0/download")
	s.log.waitFor(t, "usage.db: it is damaged")
	s.stop(t)
}

// token list shows when a token was last used, of those that a server accepts.
func TestLastUseOfToken(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--require-token")
	used := token(t, s.data, "--name", "used", "--scope", "read:modules/acme/*")
	token(t, s.data, "--name", "unused", "--scope", "read:**")
	transport := &http.Transport{TLSClientConfig: secured(s.CAFile)}
	defer transport.CloseIdleConnections()
	url := "https://" + s.Host + "/v1/modules/acme/vpc/aws/versions"
	request := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
	request.Header.Set("Authorization", "Bearer "+used)
	response := must((&http.Client{Transport: transport}).Do(request))
	response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("status %d, want 404", response.StatusCode)
	}
	s.stop(t)
	var tokens tokensView
	if err := json.Unmarshal([]byte(larder(t, "token", "list", "--json", "--store", s.data)), &tokens); err != nil {
		t.Fatal(err)
	}
	for _, listed := range tokens.Tokens {
		if isUsed := time.Since(listed.LastUsedAt) < time.Hour; isUsed != (listed.Name == "used") {
			t.Errorf("token %s was last used at %v", listed.Name, listed.LastUsedAt)
		}
	}
}
