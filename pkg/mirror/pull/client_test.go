package pull_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/larder-registry/larder/pkg/mirror/pull"
)

// The worker ignores the proxies of the environment, because a proxy would look
// up host names itself.
func TestClientUsesNoProxy(t *testing.T) {
	var direct, proxied atomic.Int32
	count := func(requests *atomic.Int32) string {
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		t.Cleanup(server.Close)
		return server.URL
	}
	target, proxy := count(&direct), count(&proxied)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy)
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	c, err := pull.NewClient("larder/test").Isolate(netip.MustParsePrefix("0.0.0.0/32"))
	if err != nil {
		t.Fatal(err)
	}
	// Proxies of the environment are never used for 127.0.0.1. The system connects
	// 0.0.0.0 to it.
	target = strings.Replace(target, "127.0.0.1", "0.0.0.0", 1)
	if err := c.Download(t.Context(), target, io.Discard, 100, nil); err != nil {
		t.Error(err)
	}
	if n := proxied.Load(); n != 0 {
		t.Errorf("%d requests came to the proxy", n)
	}
	if n := direct.Load(); n != 1 {
		t.Errorf("%d requests came to the server, want 1", n)
	}
}
