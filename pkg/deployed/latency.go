package deployed

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/pkg/requestlog"
)

// timed has it counted how long each call takes until its answer begins, for the request that it is made for. An attempt
// that failed is a call.
type timed struct{ aws.HTTPClient }

func (c timed) Do(r *http.Request) (*http.Response, error) {
	begin := time.Now()
	response, err := c.HTTPClient.Do(r)
	requestlog.From(r.Context()).AddStoreCall(time.Since(begin))
	return response, err
}
