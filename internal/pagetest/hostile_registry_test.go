package pagetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// host is the host of the registry in addresses.
	host = "registry.example.com"
	// digest is the digest of files that the tests do not read.
	digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

var published = time.Date(2026, 11, 22, 6, 55, 44, 0, time.UTC)

// attacked is a registry whose publishers attack the readers of its pages.
type attacked struct {
	t    *testing.T
	data *local.Data
	// readmes are the paths of the pages with small READMEs, by their names.
	readmes map[string]string
	// others are the paths of other pages, which list and link to more.
	// inBrowser are those of them that show all content in few pages.
	others, inBrowser []string
	// rejected are the contents that the registry rejects, as KIND: NAME.
	rejected map[string]bool
}

// newAttacked creates a registry, and publishes all hostile content to it.
func newAttacked(t *testing.T) *attacked {
	t.Helper()
	data, _, err := local.Create(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = data.Close() })
	a := &attacked{t: t, data: data, readmes: make(map[string]string), rejected: make(map[string]bool)}
	a.publishReadmes()
	a.publishSizes()
	a.publishTexts()
	a.publishExpressions()
	a.publishFolders()
	a.publishDescriptions()
	a.publishPublishers()
	a.publishProviders()
	a.publishMirrored()
	return a
}

// handler returns the handler of the whole registry, for everyone.
func (a *attacked) handler() http.Handler {
	return a.data.Handler("https://"+host, true, access.Settings{}, slog.New(slog.DiscardHandler))
}

// must fails the test if there is an error.
func (a *attacked) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// accepts records the rejection of content. It fails the test for any other
// error.
func (a *attacked) accepts(what string, err error) bool {
	a.t.Helper()
	if errors.Is(err, registry.ErrInvalid) {
		a.rejected[what] = true
		return false
	}
	a.must(err)
	return true
}

func module(name string) registry.Module {
	return registry.Module{Namespace: "evil", Name: name, System: "aws"}
}

func number(minor, patch int) registry.Version {
	return registry.Version{Major: 1, Minor: uint64(minor), Patch: uint64(patch)}
}

// publish packs and publishes a module from files. It leaves out what only the
// command line checks, as an attacker would.
func (a *attacked) publish(name string, v registry.Version, files map[string]string) error {
	a.t.Helper()
	dir := a.t.TempDir()
	for path, content := range files {
		path = filepath.Join(dir, path)
		a.must(os.MkdirAll(filepath.Dir(path), 0o700))
		a.must(os.WriteFile(path, []byte(content), 0o600))
	}
	p := publish.Publisher{
		Catalog: a.data.Catalog, Objects: a.data.Objects, By: registry.Publisher{Kind: registry.PublisherUser, Name: "eve"},
		Now: func() time.Time { return published },
	}
	var packed bytes.Buffer
	if _, err := archive.Pack(a.t.Context(), dir, archive.Options{}, &packed); err != nil {
		return err
	}
	path := filepath.Join(a.t.TempDir(), name+".tar.gz")
	a.must(os.WriteFile(path, packed.Bytes(), 0o600))
	// No client loads some of these modules, so they can only be copies.
	origin := &registry.CopiedFrom{Source: "registry.example.com/" + module(name).String()}
	_, err := p.Module(a.t.Context(), rules.Module{Archive: path, Address: module(name), Version: v, CopiedFrom: origin})
	return err
}

// readmesPerModule is below the number of folders that documentation has.
const readmesPerModule = 150

// publishReadmes publishes each small README as that of a submodule, and each
// large one as that of a module.
func (a *attacked) publishReadmes() {
	a.t.Helper()
	for i, some := range slices.Collect(slices.Chunk(hostile.Readmes(), readmesPerModule)) {
		name := fmt.Sprintf("readmes-%d", i)
		files := map[string]string{"main.tf": "", "README.md": "# Readmes\n"}
		for j, readme := range some {
			folder := fmt.Sprintf("modules/r%03d", j)
			files[folder+"/main.tf"], files[folder+"/README.md"] = `output "a" { value = 1 }`, readme.Content
			files["README.md"] += fmt.Sprintf("- [%s](%s)\n", folder, folder)
			a.readmes[readme.Name] = "/" + module(name).Path() + "/1.0.0/" + folder
		}
		a.must(a.publish(name, number(0, 0), files))
		a.others = append(a.others, "/"+module(name).Path())
	}
	for _, size := range []int{250 << 10, 5 << 20} {
		for i, readme := range hostile.LargeReadmes(size) {
			if size > 1<<20 && i%5 > 0 { // all of them are treated alike
				continue
			}
			name := fmt.Sprintf("large-%d-%d", size>>10, i)
			a.must(a.publish(name, number(0, 0), map[string]string{"main.tf": "", "README.md": readme.Content}))
			a.others = append(a.others, "/"+module(name).Path())
		}
	}
}

// publishSizes publishes modules whose documentation is small enough to store,
// but whose pages would not be.
func (a *attacked) publishSizes() {
	a.t.Helper()
	for name, block := range map[string]func(i int) string{
		"inputs":    func(i int) string { return fmt.Sprintf("variable \"a%d\" {}\n", i) },
		"outputs":   func(i int) string { return fmt.Sprintf("output \"a%d\" { value = 1 }\n", i) },
		"resources": func(i int) string { return fmt.Sprintf("resource \"a\" \"b%d\" {}\n", i) },
	} {
		files := make(map[string]string)
		for file := range 3 {
			var text strings.Builder
			for i := file; i < 30_000 && text.Len() < 1<<20-20<<10; i += 3 {
				text.WriteString(block(i))
			}
			files[fmt.Sprintf("main%d.tf", file)] = text.String()
		}
		a.must(a.publish(name, number(0, 0), files))
		a.others = append(a.others, "/"+module(name).Path())
	}
	files := make(map[string]string)
	for i := range 35 {
		files[fmt.Sprintf("main%d.tf.json", i)] =
			fmt.Sprintf(`{"variable":{"a%d":{"description":"%s"}}}`, i, strings.Repeat("'", 16<<10))
	}
	a.must(a.publish("quotes", number(0, 0), files))
	a.others = append(a.others, "/"+module("quotes").Path())
}

type object = map[string]any

// literal returns a text as a template of HCL that has that value.
func literal(text string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(text)
}

// publishTexts publishes two versions of a module that has each text in all
// places for texts.
func (a *attacked) publishTexts() {
	a.t.Helper()
	texts, sources := hostile.Texts(), hostile.Sources()
	for shift := range 2 {
		variables, outputs, modules, required, resources := object{}, object{}, object{}, object{}, object{}
		for i := range texts {
			text := literal(texts[(i+shift)%len(texts)].Content)
			variables[fmt.Sprintf("text_%d", i)] = object{
				"description": text, "type": "string", "default": text, "deprecated": text,
				"validation": []object{{"condition": true, "error_message": text}},
			}
			variables[fmt.Sprintf("type_%d", i)] = object{"type": text}
			outputs[fmt.Sprintf("text_%d", i)] = object{"description": text, "value": 1, "deprecated": text}
			required[fmt.Sprintf("text%d", i)] = object{"source": text, "version": text}
		}
		for i, source := range sources {
			s := sources[(i+shift)%len(sources)].Content
			modules[fmt.Sprintf("source_%d", i)] = object{
				"source": strings.ReplaceAll(s, "HOST", host), "version": texts[i].Content,
			}
			_ = source
		}
		for _, id := range hostile.Identifiers() {
			variables[id.Content] = object{"description": id.Name}
			outputs[id.Content] = object{"value": 1}
			resources["aws_"+id.Content] = object{id.Content: object{}}
		}
		config, err := json.Marshal(object{
			"variable": variables, "output": outputs, "module": modules, "resource": resources, "data": resources,
			"terraform": object{"required_providers": required, "required_version": literal(texts[shift].Content)},
		})
		a.must(err)
		a.must(a.publish("texts", number(shift, 0), map[string]string{"main.tf.json": string(config)}))
	}
	path := "/" + module("texts").Path()
	a.inBrowser = append(a.inBrowser, path+"/1.0.0", path+"/1.1.0", path+"/compare?from=1.0.0&to=1.1.0")
	a.others = append(a.others, path, path+"/versions", path+"/used-by", path+"/compare", path+"/compare?from=1.1.0&to=1.0.0")
}

// publishExpressions publishes two versions of modules with each type and
// default. In the first one, the variables have neither.
func (a *attacked) publishExpressions() {
	a.t.Helper()
	const variable = "variable %q {\n  type = %s\n  default = %s\n}\n"
	var before, after strings.Builder
	add := func(name, before, after string) {
		a.must(a.publish(name, number(0, 0), map[string]string{"main.tf": before}))
		a.must(a.publish(name, number(1, 0), map[string]string{"main.tf": after}))
		path := "/" + module(name).Path()
		a.inBrowser = append(a.inBrowser, path+"/1.1.0", path+"/compare?from=1.0.0&to=1.1.0")
		a.others = append(a.others, path, path+"/1.0.0")
	}
	for i, e := range hostile.Expressions() {
		name := fmt.Sprintf("e%d", i)
		first := fmt.Sprintf(variable, name, "any", "null")
		second := fmt.Sprintf(variable, name, e.Type, e.Default)
		if len(second) > 8<<10 {
			add(fmt.Sprintf("expression-%d", i), first, second)
			continue
		}
		before.WriteString(first)
		after.WriteString(second)
	}
	add("expressions", before.String(), after.String())
}

// publishFolders publishes a module for each name of a folder that archives can
// have.
func (a *attacked) publishFolders() {
	a.t.Helper()
	files := map[string]string{"main.tf": "", "README.md": ""}
	for i, folder := range hostile.Folders() {
		own := map[string]string{
			"main.tf": "", "modules/" + folder.Content + "/main.tf": "", "examples/" + folder.Content + "/main.tf": "",
			"modules/" + folder.Content + "/README.md": "[a](modules/" + folder.Content + ")",
		}
		if !a.accepts("folder: "+folder.Name, a.publish(fmt.Sprintf("folder-%d", i), number(0, 0), own)) {
			continue
		}
		for name, content := range own {
			files[name] = content
		}
		files["README.md"] += fmt.Sprintf("[a](modules/%s) [b](./examples/%s/) ", folder.Content, folder.Content)
	}
	a.must(a.publish("folders", number(0, 0), files))
	a.inBrowser = append(a.inBrowser, "/"+module("folders").Path())
}

// moduleRecord returns the record of a version without documentation.
func moduleRecord(m registry.Module, v registry.Version) registry.ModuleVersion {
	return registry.ModuleVersion{
		Version: v, Object: m.ArchiveKey(v, digest), SHA256: digest, ContentSHA256: digest, Size: 121, PublishedAt: published,
	}
}

// addModule adds a version of a module to the catalog.
func (a *attacked) addModule(m registry.Module, record registry.ModuleVersion) {
	a.t.Helper()
	makeRecord := returning(record)
	_, _, err := a.data.Catalog.Modules.Publish(a.t.Context(), m, record.Version, "eve", makeRecord)
	a.must(err)
}

// returning returns a function that returns a record.
func returning[R registry.Record](record R) catalog.MakeRecord[R] {
	return func(ctx context.Context, _ protocol.Document) (R, error) { return record, ctx.Err() }
}

// publishDescriptions adds a module for each text that registries accept as a
// description, with deprecations and a withdrawal for the same reason.
func (a *attacked) publishDescriptions() {
	a.t.Helper()
	ctx, modules := a.t.Context(), a.data.Catalog.Modules
	for i, text := range hostile.Texts() {
		m := module(fmt.Sprintf("description-%d", i))
		for minor := range 3 {
			record := moduleRecord(m, number(minor, 0))
			if a.accepts("description: "+text.Name, rules.CheckDescription(text.Content)) {
				record.Description = text.Content
			}
			a.addModule(m, record)
		}
		path := "/" + m.Path()
		a.others = append(a.others, path, path+"/1.0.0", path+"/1.1.0", path+"/versions")
		if a.accepts("deprecation: "+text.Name, rules.CheckDeprecation(text.Content)) {
			deprecated := number(1, 0)
			_, err := modules.Deprecate(ctx, m, &deprecated, catalog.Deprecation{
				Message: text.Content, By: text.Content, Hide: i%2 == 0,
			})
			a.must(err)
			if i%3 == 0 {
				_, err := modules.Deprecate(ctx, m, nil, catalog.Deprecation{Message: text.Content, By: "eve"})
				a.must(err)
			}
		}
		if a.accepts("reason: "+text.Name, rules.CheckReason(text.Content)) {
			_, _, err := modules.Withdraw(ctx, m, number(0, 0), registry.Withdrawal{
				At: published, By: text.Content, Reason: text.Content,
			}, false)
			a.must(err)
		}
	}
	a.inBrowser = append(a.inBrowser, "/", "/modules", "/search?q=script", "/providers", "/mirror", "/setup", "/status")
	a.others = append(a.others, "/modules/evil", "/providers/evil")
}

// publishers returns publishers with each text and URL, which no issuer would
// prove.
func publishers() (all []registry.Publisher) {
	for _, text := range hostile.Texts() {
		c := text.Content
		all = append(all,
			registry.Publisher{Kind: registry.PublisherToken, Name: c}, registry.Publisher{Kind: registry.PublisherAWS, Name: c},
			registry.Publisher{Kind: registry.PublisherUser, Name: c},
			registry.Publisher{Kind: registry.PublisherOIDC, Name: c, Issuer: c, Subject: c},
			registry.Publisher{
				Kind: registry.PublisherOIDC, Name: c, Issuer: c, Subject: c, Repository: c, Ref: c, Commit: c,
				RunURL: "https://a.example/" + c + "/actions/runs/1",
			})
	}
	for _, url := range hostile.URLs() {
		all = append(all, registry.Publisher{
			Kind: registry.PublisherOIDC, Issuer: url.Content, Repository: "acme/vpc", Ref: "refs/tags/v1", Commit: digest[:40],
			RunURL: url.Content,
		}, registry.Publisher{Kind: registry.PublisherKind(url.Content), Name: url.Content, RunURL: url.Content})
	}
	return all
}

// publishPublishers adds a version for each publisher. Each text is that of one
// publisher of a kind.
func (a *attacked) publishPublishers() {
	a.t.Helper()
	m := module("publishers")
	for i, by := range publishers() {
		if i%5 != i/5%5 && i < 5*len(hostile.Texts()) && i%5 != 4 {
			continue
		}
		record := moduleRecord(m, number(0, i))
		record.PublishedBy = by
		a.addModule(m, record)
		path := fmt.Sprintf("/%s/1.0.%d", m.Path(), i)
		if i >= 5*len(hostile.Texts()) {
			a.inBrowser = append(a.inBrowser, path)
		} else {
			a.others = append(a.others, path)
		}
	}
	a.others = append(a.others, "/"+m.Path())
	a.inBrowser = append(a.inBrowser, "/"+m.Path()+"/versions", "/"+m.Path()+"/versions?after=100")
}

func packages(path, v, filename string) []registry.ProviderPackage {
	return []registry.ProviderPackage{{
		Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Filename: filename, H1: "h1:" + filename,
		StoredFile: storedFile(path, v),
	}}
}

func storedFile(path, v string) registry.StoredFile {
	return registry.StoredFile{Object: path + "/" + v + "/" + digest + "/file", SHA256: digest, Size: 116}
}

// publishProviders adds a version of a provider for each owner of a key.
func (a *attacked) publishProviders() {
	a.t.Helper()
	ctx, p := a.t.Context(), registry.Provider{Namespace: "evil", Type: "keys"}
	for i, text := range hostile.Texts() {
		v, id := number(0, i), fmt.Sprintf("51852D87348F%04X", i)
		_, err := a.data.Catalog.AddSigningKey(ctx, p.Namespace, registry.SigningKey{
			ID: id, Owner: text.Content, Algorithm: "Ed25519", AddedAt: published, AddedBy: text.Content,
			ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n" + text.Content,
		})
		a.must(err)
		files := storedFile(p.Path(), v.String())
		_, _, err = a.data.Catalog.Providers.Publish(ctx, p, v, "eve", returning(registry.ProviderVersion{
			Version: v, Protocols: []string{"6.0"}, Packages: packages(p.Path(), v.String(), text.Content), Sums: files,
			Signature: files, SigningKey: id, PublishedAt: published,
			PublishedBy: registry.Publisher{Kind: registry.PublisherToken, Name: text.Content},
		}))
		a.must(err)
		if rules.CheckDeprecation(text.Content) == nil && i%2 == 0 {
			_, err := a.data.Catalog.Providers.Deprecate(ctx, p, &v, catalog.Deprecation{Message: text.Content, By: "eve"})
			a.must(err)
		}
		if rules.CheckReason(text.Content) == nil && i%3 == 0 {
			_, _, err := a.data.Catalog.Providers.Withdraw(ctx, p, v, registry.Withdrawal{
				At: published, By: text.Content, Reason: text.Content,
			}, false)
			a.must(err)
		}
		a.others = append(a.others, "/"+p.Path()+"/"+v.String())
	}
	a.inBrowser = append(a.inBrowser, "/"+p.Path(), "/"+p.Path()+"/versions")
}

// publishMirrored adds a version of a mirrored provider for each text, a waiting
// and a refused one, and the decisions of operators.
func (a *attacked) publishMirrored() {
	a.t.Helper()
	p, err := registry.ParseMirrorProvider("xn--80ak6aa92e.example/evil/keys")
	a.must(err)
	_, err = a.data.Catalog.SetMirrorPolicy(a.t.Context(), registry.MirrorPolicy{
		Text: "allow", Rules: []registry.MirrorRule{{Pattern: "*/*/*", Line: 1, MinAge: 3600}}, SetAt: published, SetBy: "eve",
	}, "1 rule")
	a.must(err)
	for i, text := range hostile.Texts() {
		v := number(0, i)
		_, _, err := a.data.Catalog.Mirror.Add(a.t.Context(), p, registry.MirrorVersion{
			Version: v, Packages: []registry.MirrorPackage{{
				ProviderPackage: packages(p.Path(), v.String(), text.Content)[0], SigningKey: text.Content, MirroredAt: published,
				MirroredBy: registry.Publisher{Kind: registry.PublisherUser, Name: text.Content},
			}},
		}, "eve")
		a.must(err)
		a.others = append(a.others, "/"+p.Path()+"/"+v.String())
	}
	_, err = a.data.Catalog.Mirror.UpdateOrigin(a.t.Context(), p, a.seeTexts)
	a.must(err)
	a.inBrowser = append(a.inBrowser, "/"+p.Path(), "/"+p.Path()+"/versions")
}

// seeTexts adds a decision for each text, and a waiting version. The registry
// stores the last few refusals.
func (a *attacked) seeTexts(o *registry.MirrorOrigin) (changed bool, entry *registry.AuditEntry, err error) {
	future := time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	o.See(map[registry.Version]time.Time{number(1, 0): future}, published)
	for i, text := range hostile.Texts() {
		d := registry.Decision{At: published, By: text.Content, Reason: text.Content}
		o.Admit(number(0, i), d)
		key := registry.OriginKey{ID: text.Content, Fingerprint: text.Content, Owner: text.Content}
		o.Refuse(registry.RefusedVersion{Version: number(2, i), At: published, Key: key})
		if key.ID != "" {
			key.SeenAt, key.Trusted = future, &d
			o.Keys = append(o.Keys, key)
		}
		o.Unsigned = &d
	}
	return true, nil, nil
}
