package deployed

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/pkg/requestlog"
)

// measuredClient adds the time until each response begins to the log of the
// request that the call is made for. A failed attempt is a call too.
type measuredClient struct{ aws.HTTPClient }

func (c measuredClient) Do(r *http.Request) (*http.Response, error) {
	begin := time.Now()
	response, err := c.HTTPClient.Do(r)
	requestlog.From(r.Context()).AddStoreCall(time.Since(begin))
	return response, err
}
