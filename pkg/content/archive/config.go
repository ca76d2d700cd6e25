package archive

import (
	"context"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/content/configuration"
	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/registry"
)

// readConfig parses a configuration file with the clients' parser. It returns
// what it declares, and its calls of other folders. The error is a
// [*safehcl.Error], or that of ctx.
func readConfig(
	ctx context.Context, parser *safehcl.Parser, name string, source []byte,
) (configuration.File, []Call, error) {
	parse := parser.Parse
	if strings.HasSuffix(name, ".json") {
		parse = parser.ParseJSON
	}
	file, err := parse(ctx, name, source)
	if err != nil {
		return configuration.File{}, nil, err
	}
	return configuration.Read(name, file), calls(name, file), nil
}

// invalidConfig returns the problem of a file as registry.ErrInvalid.
func invalidConfig(problem *safehcl.Error) error {
	err := fmt.Errorf("%w module: %w", registry.ErrInvalid, problem)
	if problem.Hint != "" {
		err = registry.WithHint(err, "%s", problem.Hint)
	}
	return err
}
