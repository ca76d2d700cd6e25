package lambdahttp

import (
	"io"
	"log/slog"

	"github.com/larder-registry/larder/pkg/deployed/metrics"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
)

// Count returns an observer that counts each request in a CloudWatch namespace,
// with lines to w. If CloudWatch does not accept the namespace, Count logs that
// once, and the observer counts nothing.
func Count(log *slog.Logger, w io.Writer, namespace string) func(*requestlog.Entry) {
	counter, err := metrics.NewWriter(w, namespace)
	if err != nil {
		log.Error("no request is counted", slog.String("error", err.Error()))
		return func(*requestlog.Entry) {}
	}
	return func(e *requestlog.Entry) {
		counter.Count(metrics.Request{
			Route: e.Route, ID: e.RequestID, Status: e.Status, Download: string(e.Download), Store: e.StoreCalls(),
		})
	}
}
