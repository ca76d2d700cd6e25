package publish

import (
	"context"
	"fmt"

	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/monorepo"
)

// addSource sets the Git source of a module in a folder. If git cannot read it,
// the module is published without one, and addSource returns a note. The error
// is that of ctx.
func addSource(ctx context.Context, m *rules.Module) (notes []string, _ error) {
	var err error
	m.Claimed, err = monorepo.Claim(ctx, m.Dir, m.Address, m.Version)
	if err == nil || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	note := fmt.Sprintf("the version has no Git source: %v", err)
	if hint := registry.Hint(err); hint != "" {
		note += ". " + hint
	}
	return []string{note}, nil
}
