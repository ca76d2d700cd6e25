package lambdahttp

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/metrics"
	"github.com/larder-registry/larder/pkg/requestlog"
)

// Meter writes a line to w for each request, of which CloudWatch makes the metrics of a namespace. Lambda hands lines on as
// they are written, so that each is one write. A namespace that CloudWatch does not take is no reason not to serve: log has it
// once, and nothing is counted.
func Meter(log *slog.Logger, w io.Writer, namespace string) func(*requestlog.Entry) {
	if _, err := (metrics.Request{}).Line(namespace, time.Now()); err != nil {
		log.Error("no request is counted", slog.String("error", err.Error()))
		return func(*requestlog.Entry) {}
	}
	var warm atomic.Bool
	return func(e *requestlog.Entry) {
		line, err := metrics.Request{
			Route: e.Route, ID: e.RequestID, Status: e.Status, Download: string(e.Download), Store: e.StoreCalls(), KeysEnd: e.KeysEnd, Cold: !warm.Swap(true),
		}.Line(namespace, time.Now())
		if err == nil { // nothing else that a request has can be wrong
			_, _ = w.Write(line)
		}
	}
}
