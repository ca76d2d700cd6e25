//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Readers with new connections find each version, and all of its bytes, from its
// publish on. The certificate is renewed meanwhile, without a failed request or
// download.
func TestPublishAndRenewWhileReading(t *testing.T) {
	t.Parallel()
	const readers, versions = 8, 10
	dir, data := t.TempDir(), newData(t)
	cert, key, rules := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "access.json")
	writeCertificate(t, cert, key, 1, time.Now().AddDate(0, 0, 60))
	large := make([]byte, 8<<20) // more than the buffers of a connection
	_, _ = rand.Read(large)      // it never fails
	writeFiles(t, dir, map[string]string{"access.json": `{"public": ["modules/**"]}`})
	publishModule(t, data, "acme/held/aws", "1.0.0", map[string]string{"main.tf": "", "data": string(large)})
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("0"))
	s := serve(t, data, "--host", certifiedHost, "--cert", cert, "--key", key, "--access", rules)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // servedSerial checks the certificate
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Address)
		},
	}}
	held, want, err := newestArchive(t.Context(), client, "acme/held/aws", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	digest := sha256.New()
	if _, err := io.CopyN(digest, held, 64<<10); err != nil {
		t.Fatal(err)
	}
	var published, read atomic.Int64
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for published.Load() < versions {
				archive, want, err := newestArchive(t.Context(), client, "acme/vpc/aws", int(1+published.Load()))
				if err != nil {
					t.Error(err)
					return
				}
				digest := sha256.New()
				_, err = io.Copy(digest, archive)
				_ = archive.Close()
				if got := hex.EncodeToString(digest.Sum(nil)); err != nil || got != want {
					t.Errorf("the archive has sha256:%s, want %s: %v", got, want, err)
				}
				read.Add(1)
			}
		})
	}
	for n := 1; n <= versions; n++ {
		publishModule(t, data, "acme/vpc/aws", fmt.Sprintf("1.%d.0", n), withOutput(fmt.Sprint(n)))
		if n == versions/2 {
			writeCertificate(t, cert, key, 2, time.Now().AddDate(0, 0, 90))
			if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			s.log.waitFor(t, "using a new certificate")
			if serial := servedSerial(t, s); serial != 2 {
				t.Errorf("renewed: certificate %d", serial)
			}
		}
		published.Add(1)
	}
	running.Wait()
	if _, err := io.Copy(digest, held); err != nil || hex.EncodeToString(digest.Sum(nil)) != want {
		t.Errorf("a download across the renewal has other bytes, or %v", err)
	}
	if read.Load() < readers || strings.Contains(s.log.String(), "level=ERROR") {
		t.Errorf("%d reads; the log:\n%s", read.Load(), s.log)
	}
}

// newestArchive returns the archive of the newest version of a module, and its
// digest. The module must have at least a number of versions.
func newestArchive(ctx context.Context, client *http.Client, module string, versions int) (
	archive io.ReadCloser, digest string, err error,
) {
	get := func(path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+certifiedHost+path, nil)
		if err != nil {
			return nil, err
		}
		response, err := client.Do(r)
		if err == nil && response.StatusCode >= http.StatusMultipleChoices {
			_ = response.Body.Close()
			err = fmt.Errorf("GET %s: %s", r.URL.Path, response.Status)
		}
		return response, err
	}
	response, err := get("/v1/modules/" + module + "/versions")
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	var listing struct {
		Modules []struct{ Versions []struct{ Version string } }
	}
	if err := json.NewDecoder(response.Body).Decode(&listing); err != nil {
		return nil, "", err
	}
	listed := listing.Modules[0].Versions
	if len(listed) < versions {
		return nil, "", fmt.Errorf("%s has %d versions, want at least %d", module, len(listed), versions)
	}
	located, err := get("/v1/modules/" + module + "/" + listed[0].Version + "/download")
	if err != nil {
		return nil, "", err
	}
	_ = located.Body.Close()
	location := strings.TrimPrefix(located.Header.Get("X-Terraform-Get"), "https://"+certifiedHost)
	location, digest, _ = strings.Cut(location, "&archive=tar.gz&checksum=sha256:")
	response, err = get(location)
	if err != nil {
		return nil, "", err
	}
	return response.Body, digest, nil
}
