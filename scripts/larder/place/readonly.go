package place

import (
	"context"
	"io"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// readOnlyTable and readOnlyObjects refuse to write to a copy. Otherwise a writer
// with more permissions than operators could overwrite what the original gets.
type (
	readOnlyTable   struct{ catalog.Table }
	readOnlyObjects struct{ objects.Store }
)

func (readOnlyTable) Write(context.Context, ...catalog.Change) error { return errReadOnly }

func (readOnlyObjects) PutOnce(context.Context, string, io.ReadSeeker, objects.Digest) error {
	return errReadOnly
}

var errReadOnly = registry.WithHint(registry.Errorf(registry.ErrForbidden, "this registry is a read-only copy"),
	"Name the stack that it copies, or set AWS_REGION to its region.")
