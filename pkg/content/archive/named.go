package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/files/regularfile"
)

// findNamed sets NamedBy of the excluded files. It finds literal paths after
// ${path.module} in the configuration, such as in
// templatefile("${path.module}/x").
func (p *packer) findNamed(ctx context.Context) error {
	if len(p.excluded) == 0 {
		return nil
	}
	var parser safehcl.Parser
	for _, f := range p.files {
		if !isConfig(f.Path) || strings.HasSuffix(f.Path, ".json") || f.Size > maxConfig {
			continue
		}
		source, err := p.read(f)
		if err != nil {
			return regularfile.Unreadable(f.from, err)
		}
		file, err := parser.Parse(ctx, f.Path, source)
		if _, invalid := errors.AsType[*safehcl.Error](err); invalid {
			return nil // ReadModule reports it
		}
		if err != nil {
			return err
		}
		for named, at := range safehcl.ModulePaths(file) {
			p.name(path.Join(path.Dir(f.Path), named), at)
		}
	}
	return nil
}

func (p *packer) read(f packedFile) ([]byte, error) {
	in, err := p.root.Open(f.from)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, maxConfig))
}

// name records that the configuration at a position names a path.
func (p *packer) name(named string, at hcl.Range) {
	for i := range p.excluded {
		left := &p.excluded[i]
		within := strings.HasSuffix(left.Path, "/") && strings.HasPrefix(named+"/", left.Path)
		if left.NamedBy == "" && (left.Path == named || within) {
			left.NamedBy = fmt.Sprintf("%s:%d", at.Filename, at.Start.Line)
		}
	}
}
