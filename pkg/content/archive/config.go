package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/registry"
)

// blocks are the blocks that take the same number of labels in every release of
// both clients. Everything else is left to the clients, because their rules
// differ and depend on values.
var blocks = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "terraform"},
	{Type: "locals"},
	{Type: "variable", LabelNames: []string{"name"}},
	{Type: "output", LabelNames: []string{"name"}},
	{Type: "module", LabelNames: []string{"name"}},
	{Type: "provider", LabelNames: []string{"name"}},
	{Type: "resource", LabelNames: []string{"type", "name"}},
	{Type: "data", LabelNames: []string{"type", "name"}},
}}

// checkConfig parses a configuration file with the clients' parser, and returns
// its calls of other folders. It returns registry.ErrInvalid with the file and
// the line, or the error of ctx.
func checkConfig(ctx context.Context, parser *safehcl.Parser, name string, source []byte) (found []Call, err error) {
	parse := parser.Parse
	if strings.HasSuffix(name, ".json") {
		parse = parser.ParseJSON
	}
	file, err := parse(ctx, name, source)
	if err == nil {
		content, _, problems := file.Body.PartialContent(blocks)
		if err = safehcl.FirstError(name, problems); err == nil {
			return calls(name, content), nil
		}
	}
	if problem, ok := errors.AsType[*safehcl.Error](err); ok {
		err = fmt.Errorf("%w module: %w", registry.ErrInvalid, problem)
		if problem.Hint != "" {
			err = registry.WithHint(err, "%s", problem.Hint)
		}
	}
	return nil, err
}
