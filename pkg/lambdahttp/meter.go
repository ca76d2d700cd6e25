package lambdahttp

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/metrics"
)

// Meter writes a line to w for each request, of which CloudWatch makes the metrics of a namespace. Lambda hands lines on as
// they are written, so that each is one write. A namespace that CloudWatch does not take is no reason not to serve: log has it
// once, and nothing is counted.
func Meter(log *slog.Logger, w io.Writer, namespace string) func(httpapi.Served) {
	if _, err := (metrics.Request{}).Line(namespace, time.Now()); err != nil {
		log.Error("no request is counted", slog.String("error", err.Error()))
		return func(httpapi.Served) {}
	}
	var warm atomic.Bool
	return func(s httpapi.Served) {
		line, err := metrics.Request{
			Route: s.Route, ID: s.ID, Status: s.Status, Download: string(s.Download), Store: s.Store, KeysEnd: s.KeysEnd, Cold: !warm.Swap(true),
		}.Line(namespace, time.Now())
		if err == nil { // nothing else that a request has can be wrong
			_, _ = w.Write(line)
		}
	}
}
