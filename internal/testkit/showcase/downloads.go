package showcase

import (
	"context"
	"log/slog"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/usage/daily"
)

// downloads counts downloads of the last two weeks.
func (f *filler) downloads(context.Context) error {
	counter := daily.NewCounter(f.data.Dir, f.data.Catalog, slog.Default())
	for _, d := range []struct {
		kind             requestlog.Download
		address, version string
		count            int
	}{
		{requestlog.ModuleDownload, vpc.String(), "5.0.0-rc.1", 3},
		{requestlog.ModuleDownload, vpc.String(), "4.2.0", 214},
		{requestlog.ModuleDownload, vpc.String(), "4.1.0", 1087},
		{requestlog.ModuleDownload, vpc.String(), "4.0.3", 96},
		{requestlog.ModuleDownload, vpc.String(), "3.21.0", 41},
		{requestlog.ModuleDownload, vpc.String(), "3.18.0", 6},
		{requestlog.ModuleDownload, "acme/network/aws", "7.4.2", 17},
		{requestlog.ProviderDownload, "acme/inventory", "1.2.0", 58}, {requestlog.ProviderDownload, "acme/inventory", "1.0.0", 9},
		{requestlog.MirrorDownload, mirroredModule.String(), "5.19.0", 96},
		{requestlog.MirrorDownload, aws, "6.19.0", 730},
	} {
		for i := range d.count {
			counter.Now = func() time.Time { return Now.Add(-time.Duration(d.count%83*3+i%90) * time.Hour) }
			counter.Observe(&requestlog.Entry{Download: d.kind, Address: d.address, Version: d.version})
		}
	}
	counter.Now = func() time.Time { return Now.AddDate(0, -2, 0) } // since when it counts
	counter.Close()
	return nil
}
