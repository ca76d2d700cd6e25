package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/registry"
)

// library is a registry with documented modules, whose lists and searches are
// measured.
type library struct {
	name                string
	modules, namespaces int
}

// libraries returns the measured libraries.
func (n amounts) libraries() []library {
	const namespaces = 40
	of := func(modules int) library {
		return library{fmt.Sprintf("%d modules in %d namespaces", modules, namespaces), modules, namespaces}
	}
	return []library{of(n.few), of(n.many), {fmt.Sprintf("%d modules in one namespace", n.many), n.many, 1}}
}

func (l library) namespace(i int) string { return fmt.Sprintf("team-%02d", i%l.namespaces) }

func (l library) module(i int) registry.Module {
	return registry.Module{Namespace: l.namespace(i), Name: fmt.Sprintf("%s-%05d", nouns[i%len(nouns)], i), System: "aws"}
}

// described is the module of a library that requests describe.
func (l library) described() registry.Module { return l.module(l.modules / 2) }

// The names in the documentation of modules are made of these words.
var (
	verbs = strings.Fields("create enable allow default existing additional primary secondary internal external " +
		"custom max min use skip attach manage shared private public")
	nouns = strings.Fields("network subnet gateway bucket database cluster role policy key certificate queue topic " +
		"function table dashboard alarm secret repository record zone listener target volume snapshot")
	parts = strings.Fields("id name arn tags cidr count size type mode version prefix rules timeout retention")
)

// words returns the distinct names of a module, with as many bytes as fit into
// the limit.
func words(random *rand.Rand, limit int) string {
	var all strings.Builder
	has := make(map[string]bool)
	for {
		name := verbs[random.IntN(len(verbs))] + "_" + nouns[random.IntN(len(nouns))] + "_" + parts[random.IntN(len(parts))]
		switch {
		case has[name]:
		case all.Len()+1+len(name) > limit:
			return all.String()
		case all.Len() > 0:
			all.WriteByte(' ')
			fallthrough
		default:
			all.WriteString(name)
			has[name] = true
		}
	}
}

// job is the publisher of the modules of a library.
func job(m registry.Module) registry.Publisher {
	repository := m.Namespace + "/terraform-aws-" + m.Name
	return registry.Publisher{
		Kind: registry.PublisherOIDC, Issuer: "https://token.actions.githubusercontent.com",
		Subject: "repo:" + repository + ":ref:refs/tags/v1.0.4", Repository: repository, Ref: "refs/tags/v1.0.4",
		Commit: "0123456789abcdef0123456789abcdef01234567",
		RunURL: "https://github.com/" + repository + "/actions/runs/123456789",
	}
}

// library writes the catalog entries of a library, and the versions of the
// described module. All of its modules have the same documentation.
func (s *shelf) library(ctx context.Context, l library, documentation []byte) error {
	// The names are the same in each run.
	random := rand.New(rand.NewPCG(1, 2))
	for i := range min(l.namespaces, l.modules) {
		if err := s.putJSON(ctx, "namespaces", l.namespace(i), struct{}{}); err != nil {
			return err
		}
	}
	digest := sha256.Sum256(documentation)
	for i := range l.modules {
		m := l.module(i)
		latest := registry.ModuleVersion{
			Version: version(moduleVersions), PublishedAt: long.Add(time.Duration(i) * time.Minute), PublishedBy: job(m),
			Description: "A " + nouns[i%len(nouns)] + " with everything that a team needs around it",
		}
		file := registry.StoredFile{SHA256: hex.EncodeToString(digest[:]), Size: int64(len(documentation))}
		file.Object = m.DocsKey(latest.Version, file.SHA256)
		latest.SetDocs(file, words(random, registry.MaxWords))
		if m == l.described() {
			if err := s.moduleWith(ctx, m, moduleVersions, 1, latest); err != nil {
				return err
			}
			continue
		}
		if err := s.moduleEntry(ctx, m, latest); err != nil {
			return err
		}
	}
	return s.flush(ctx)
}

// documentation returns the documentation of a module of a usual size.
func documentation() ([]byte, error) {
	const inputs, outputs, resources = 60, 30, 25
	var d docs.Documentation
	d.Root.Readme = strings.Repeat("The module creates a network with public and private subnets.\n\n", 100)
	for i := range inputs {
		d.Root.Inputs = append(d.Root.Inputs, docs.Input{
			Name: fmt.Sprintf("input_%02d", i), Type: "list(object({ name = string, size = optional(number, 3) }))",
			Description: "The module does this with the input, in a sentence.", Default: "[]",
			TypeHTML: "<span>list</span>(<span>object</span>({ name = <span>string</span> }))", DefaultHTML: "[]",
		})
	}
	for i := range outputs {
		d.Root.Outputs = append(d.Root.Outputs, docs.Output{
			Name: fmt.Sprintf("output_%02d", i), Description: "The output is this, in a sentence.",
		})
	}
	for i := range resources {
		d.Root.Resources = append(d.Root.Resources, docs.Resource{Type: "aws_subnet", Name: fmt.Sprintf("this_%02d", i)})
	}
	return docs.Encode(d)
}
