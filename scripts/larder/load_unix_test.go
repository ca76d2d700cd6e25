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
	"hash"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/registry"
)

// Readers with new connections find each version, and all of its bytes, from its
// publish on. The certificate is renewed meanwhile, without a failed request or
// download.
func TestPublishAndRenewWhileReading(t *testing.T) {
	t.Parallel()
	const readers, versions = 8, 10
	dir, data := t.TempDir(), newData(t)
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeCertificate(t, cert, key, 1, time.Now().AddDate(0, 0, 60))
	large := make([]byte, 8<<20) // more than the buffers of a connection
	_, _ = rand.Read(large)      // it never fails
	publishModule(t, data, "acme/held/aws", "1.0.0", map[string]string{"main.tf": "", "data": string(large)})
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("0"))
	token, digest := access.NewToken()
	record := registry.Token{Name: "reader", Scopes: []string{"read:**"}}
	if err := opened(t, data).Catalog.AddToken(t.Context(), digest, record); err != nil {
		t.Fatal(err)
	}
	s := serve(t, data, "--host", certifiedHost, "--cert", cert, "--key", key)
	reader := moduleReader{token: token, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // servedSerial checks the certificate
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Address)
		},
	}}}
	held, err := reader.open(t.Context(), "acme/held/aws", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer held.body.Close()
	if err := held.read(64 << 10); err != nil {
		t.Fatal(err)
	}
	reading, stop := context.WithCancel(t.Context())
	defer stop()
	var published, read atomic.Int64
	published.Store(1)
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for reading.Err() == nil {
				if err := reader.verify(t.Context(), "acme/vpc/aws", int(published.Load())); err != nil {
					t.Error(err)
					return
				}
				read.Add(1)
			}
		})
	}
	for n := 1; n <= versions; n++ {
		publishModule(t, data, "acme/vpc/aws", fmt.Sprintf("1.%d.0", n), output(fmt.Sprint(n)))
		published.Add(1)
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
	}
	stop()
	running.Wait()
	if err := held.read(-1); err != nil {
		t.Errorf("a download across the renewal: %v", err)
	}
	if read.Load() < readers {
		t.Errorf("%d reads", read.Load())
	}
	if log := s.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has errors:\n%s", log)
	}
}

// moduleReader reads modules like a client.
type moduleReader struct {
	client *http.Client
	token  string
}

// get sends a request to the server, or to a URL.
func (r moduleReader) get(ctx context.Context, path string) (*http.Response, error) {
	target, err := url.Parse("https://" + certifiedHost)
	if err == nil {
		target, err = target.Parse(path)
	}
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	if target.RawQuery == "" { // a signed URL needs no token
		request.Header.Set("Authorization", "Bearer "+r.token)
	}
	response, err := r.client.Do(request)
	if err == nil && response.StatusCode >= http.StatusMultipleChoices {
		_ = response.Body.Close()
		err = fmt.Errorf("GET %s: %s", target.Path, response.Status)
	}
	return response, err
}

// archiveDownload is an archive that is being downloaded.
type archiveDownload struct {
	body io.ReadCloser
	hash hash.Hash // of the bytes so far
	want string
}

// read reads a number of bytes. If it is negative, it reads the rest, and checks
// the digest.
func (d *archiveDownload) read(n int64) error {
	if n >= 0 {
		_, err := io.CopyN(d.hash, d.body, n)
		return err
	}
	if _, err := io.Copy(d.hash, d.body); err != nil {
		return err
	}
	if got := hex.EncodeToString(d.hash.Sum(nil)); got != d.want {
		return fmt.Errorf("the archive has sha256:%s, want %q", got, d.want)
	}
	return nil
}

// verify downloads the newest version of a module like open.
func (r moduleReader) verify(ctx context.Context, module string, versions int) error {
	d, err := r.open(ctx, module, versions)
	if err != nil {
		return err
	}
	defer d.body.Close()
	return d.read(-1)
}

// open begins to download the newest version of a module, which must have at
// least a number of versions.
func (r moduleReader) open(ctx context.Context, module string, versions int) (*archiveDownload, error) {
	response, err := r.get(ctx, "/v1/modules/"+module+"/versions")
	if err != nil {
		return nil, err
	}
	var listing struct {
		Modules []struct{ Versions []struct{ Version string } }
	}
	err = json.NewDecoder(response.Body).Decode(&listing)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	listed := listing.Modules[0].Versions
	if len(listed) < versions {
		return nil, fmt.Errorf("%s has %d versions, want at least %d", module, len(listed), versions)
	}
	response, err = r.get(ctx, "/v1/modules/"+module+"/"+listed[0].Version+"/download")
	if err != nil {
		return nil, err
	}
	_ = response.Body.Close()
	from, checksum, _ := strings.Cut(response.Header.Get("X-Terraform-Get"), "&archive=tar.gz&checksum=sha256:")
	response, err = r.get(ctx, from)
	if err != nil {
		return nil, err
	}
	return &archiveDownload{response.Body, sha256.New(), checksum}, nil
}
