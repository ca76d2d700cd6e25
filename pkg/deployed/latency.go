package deployed

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
)

// measuredClient adds the time until each response begins to the log entry of
// the request that makes the call. A failed attempt counts as a call too.
type measuredClient struct{ aws.HTTPClient }

func (c measuredClient) Do(r *http.Request) (*http.Response, error) {
	begin := time.Now()
	response, err := c.HTTPClient.Do(r)
	requestlog.From(r.Context()).AddStoreCall(time.Since(begin))
	return response, err
}
