package metadataclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
)

// InProcess returns a client of a handler of the metadata API in this process.
// host is that of the registry, or empty if it is not known. The client's
// errors are those of the store, which a response conceals.
func InProcess(api http.Handler, host string) *Client {
	c := &Client{}
	c.get = func(ctx context.Context, path string, into any) error {
		entry := &requestlog.Entry{}
		request, err := http.NewRequestWithContext(requestlog.NewContext(ctx, entry), http.MethodGet, "/v1/"+path, nil)
		if err != nil {
			return err
		}
		request.Host = host
		answer := &response{header: http.Header{}, status: http.StatusOK}
		api.ServeHTTP(answer, request)
		if answer.status == http.StatusOK {
			c.damage = cmp.Or(c.damage, entry.Err)
			if body, isRaw := into.(*[]byte); isRaw {
				*body = answer.body.Bytes()
				return nil
			}
			return json.Unmarshal(answer.body.Bytes(), into)
		}
		if answer.status == http.StatusNotFound {
			return cmp.Or(entry.Err, registry.ErrNotFound)
		}
		return cmp.Or(entry.Err, fmt.Errorf("cannot read the registry: status %d", answer.status))
	}
	return c
}

// Damage returns the first damage because of which an answer was incomplete. It is nil
// if there was none, and over the network, where only the registry's log has it.
func (c *Client) Damage() error { return c.damage }

// response is a response in memory.
type response struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *response) Header() http.Header         { return r.header }
func (r *response) WriteHeader(status int)      { r.status = status }
func (r *response) Write(p []byte) (int, error) { return r.body.Write(p) }
