package access_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
)

// The log has the ID of a token in its first request of each hour of the clock,
// whichever middleware identifies the caller.
func TestFirstUseOfHour(t *testing.T) {
	t.Parallel()
	tokens := &records{}
	ci, other := tokens.add("ci", "read:**", "publish:**"), tokens.add("other", "read:**")
	control := access.New(parse(t, `{"public":["modules/open/**"]}`), tokens)
	now := clock.At(time.Date(2030, 1, 2, 10, 59, 58, 0, time.UTC))
	access.SetClock(control, now)
	done := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	const module = "/v1/modules/acme/vpc/aws/versions"
	var got []string
	use := func(h http.Handler, path, credential string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if credential != "" {
			r.Header.Set("Authorization", "Bearer "+credential)
		}
		e := &requestlog.Entry{}
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(requestlog.NewContext(r.Context(), e)))
		got = append(got, e.Token)
	}
	use(control.RequireRead(done), module, ci)
	use(control.RequirePublish(done), "/v1/publish"+module[len("/v1"):], ci)
	use(control.Identify(done), "/v1/modules", other)
	use(control.Identify(done), "/v1/modules", "")
	now.Pass(2 * time.Second)
	use(control.RequirePublish(done), "/v1/publish"+module[len("/v1"):], ci)
	use(control.RequireRead(done), module, ci)
	use(control.RequireRead(done), module, ci[:len(ci)-1]+"_")
	id := make(map[string]string)
	for digest, record := range tokens.tokens {
		id[record.Name] = registry.TokenID(digest)
	}
	want := []string{id["ci"], "", id["other"], "", id["ci"], "", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the IDs in the log (-want +got):\n%s", diff)
	}
}
