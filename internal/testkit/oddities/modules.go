package oddities

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// Module is a module that is odd in one way. Its address is NAME/odd/test.
type Module struct {
	// Name describes what is odd.
	Name string
	Reason
	// Number is the version that a call requires.
	Number string

	oddModule
}

// oddModule has what is odd about a module. Everything else is as usual.
type oddModule struct {
	// files are the entries of the archive, and version is the version in the listing.
	files   []entry
	version string
	// format is that of the archive, by default tar.gz.
	format string
	// location is that of the module in the response of the origin. By default it is
	// /archives/NAME/module.FORMAT.
	location string
	// header changes the entries of a tar.
	header func(*tar.Header)
	// inBody means that the location is in the body of the response.
	inBody bool
	// folder is the folder with the module.
	folder string
	// served means that only the responses or the archive are odd, and not the files.
	served bool
}

// entry is a file, a folder or a link of a module.
type entry struct {
	name, content string
	kind          byte // of package tar, by default a file
	mode          int64
}

// Modules returns the modules in order.
func Modules() []Module {
	var made []Module
	for _, name := range slices.Sorted(maps.Keys(oddModules)) {
		m := Module{Name: name, Reason: reasons[name], oddModule: oddModules[name]}
		m.version, m.format = cmp.Or(m.version, "1.0.0"), cmp.Or(m.format, "tar.gz")
		m.location = cmp.Or(m.location, "/archives/"+name+"/module."+m.format)
		m.Number = strings.TrimPrefix(m.version, "v")
		made = append(made, m)
	}
	return made
}

// IsServed reports whether only the responses of the origin or its archive are odd,
// and not the files of the module.
func (o oddModule) IsServed() bool { return o.served }

// WriteFolder writes the module to an empty folder. It returns the folder of the
// module, which is dir or below it.
func (m Module) WriteFolder(t testing.TB, o *Origin, dir string) string {
	t.Helper()
	for _, e := range m.files {
		to := filepath.Join(dir, e.name) // names have no .. if the module is not served
		must(t, os.MkdirAll(filepath.Dir(to), 0o750))
		switch e.kind {
		case tar.TypeDir:
			must(t, os.MkdirAll(to, 0o750))
		case tar.TypeSymlink:
			must(t, os.Symlink(e.content, to))
		case tar.TypeLink:
			must(t, os.Link(filepath.Join(dir, e.content), to))
		default:
			write(t, to, o.in(e.content))
			must(t, os.Chmod(to, header(e).FileInfo().Mode()))
		}
	}
	return filepath.Join(dir, m.folder)
}

func header(e entry) *tar.Header {
	h := &tar.Header{
		Name: e.name, Typeflag: cmp.Or(e.kind, tar.TypeReg), Mode: cmp.Or(e.mode, 0o644), ModTime: time.Unix(1e9, 0),
	}
	switch e.kind {
	case tar.TypeSymlink, tar.TypeLink:
		h.Linkname = e.content
	case tar.TypeDir:
		h.Mode = 0o755
	default:
		h.Size = int64(len(e.content))
	}
	return h
}

// archive returns the archive of a module.
func (o *Origin) archive(m Module) ([]byte, error) {
	var out bytes.Buffer
	if m.format == "zip" {
		z := zip.NewWriter(&out)
		for _, e := range m.files {
			h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
			h.SetMode(header(e).FileInfo().Mode())
			w, err := z.CreateHeader(h)
			if err == nil {
				_, err = w.Write([]byte(o.in(e.content)))
			}
			if err != nil {
				return nil, err
			}
		}
		err := z.Close()
		return out.Bytes(), err
	}
	w := tar.NewWriter(&out)
	for _, e := range m.files {
		e.content = o.in(e.content)
		h := header(e)
		if m.header != nil {
			m.header(h)
		}
		err := w.WriteHeader(h)
		if err == nil && h.Size > 0 {
			_, err = w.Write([]byte(e.content))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil || m.format == "tar" {
		return out.Bytes(), err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(out.Bytes()); err != nil {
		return nil, err
	}
	err := z.Close()
	return packed.Bytes(), err
}

// serveModules serves modules, and makes the repositories of those that are in one.
func (o *Origin) serveModules(t testing.TB, modules []Module) {
	t.Helper()
	for _, m := range modules {
		o.modules[m.Name] = m
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Log("LEFT OUT: git is not installed")
		return
	}
	program, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	must(t, err)
	all := t.TempDir()
	for _, m := range modules {
		if !strings.HasPrefix(m.location, "git::") {
			continue
		}
		dir := filepath.Join(all, m.Name)
		must(t, os.Mkdir(dir, 0o750))
		m.WriteFolder(t, o, dir)
		for _, args := range [][]string{
			{"init", "--quiet", "--initial-branch=main"}, {"add", "--all"},
			{"commit", "--quiet", "--message=release"}, {"tag", "v1.0.0"},
		} {
			args = append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
			cmd := exec.CommandContext(t.Context(), "git", args...)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, out)
			}
		}
	}
	o.git = newGit(filepath.Join(strings.TrimSpace(string(program)), "git-http-backend"), all)
}

// serveModule answers requests about modules.
func (o *Origin) serveModule(w http.ResponseWriter, r *http.Request, parts []string) {
	if len(parts) < 2 {
		http.NotFound(w, r)
		return
	}
	m, found := o.modules[parts[1]]
	switch {
	case !found:
		http.NotFound(w, r)
	case parts[0] == "modules" && path.Base(r.URL.Path) == "versions":
		o.writeJSON(w, map[string]any{"modules": []any{map[string]any{
			"versions": []any{map[string]any{"version": m.version}},
		}}})
	case parts[0] == "modules" && path.Base(r.URL.Path) == "download":
		if m.inBody {
			o.writeJSON(w, map[string]any{"location": m.location})
			return
		}
		w.Header().Set("X-Terraform-Get", o.in(m.location))
		w.WriteHeader(http.StatusNoContent)
	case parts[0] == "hop":
		w.Header().Set("X-Terraform-Get", "/archives/"+m.Name+"/module."+m.format)
		w.WriteHeader(http.StatusNoContent)
	case parts[0] == "archives":
		packed, err := o.archive(m)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(packed)
	default:
		http.NotFound(w, r)
	}
}

// root is the configuration of a usual module.
const root = "output \"id\" {\n  value = \"vpc-1\"\n}\n"

// with returns a usual module with further files.
func with(more ...entry) []entry {
	return append([]entry{{name: "main.tf", content: root}}, more...)
}

func utf16Text(text string) string {
	out := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(text)) {
		out = append(out, byte(unit), byte(unit>>8))
	}
	return string(out)
}

// oddModules are all modules.
var oddModules = map[string]oddModule{
	"usual": {files: with()},

	// Locations.
	"zip":               {served: true, files: with(), format: "zip"},
	"tar":               {served: true, files: with(), format: "tar"},
	"tar-named-zip":     {served: true, files: with(), location: "/archives/tar-named-zip/module.zip"},
	"archive-parameter": {served: true, files: with(), location: "/archives/archive-parameter/download?archive=tar.gz"},
	"no-suffix":         {served: true, files: with(), location: "/archives/no-suffix/download"},
	"location-in-body":  {files: with(), inBody: true, served: true},
	"location-empty":    {files: with(), location: "?", served: true},
	"subfolder": {
		served: true, folder: "modules/x", files: []entry{{name: "modules/x/main.tf", content: root}},
		location: "/archives/subfolder/module.tar.gz//modules/x",
	},
	"subfolder-missing": {
		served: true, files: with(), location: "/archives/subfolder-missing/module.tar.gz//modules/x",
	},
	"subfolder-calls-parent": {
		folder: "modules/x", location: "/archives/subfolder-calls-parent/module.tar.gz//modules/x",
		files: []entry{
			{name: "modules/x/main.tf", content: "module \"y\" {\n  source = \"../y\"\n}\n"},
			{name: "modules/y/main.tf", content: root},
		},
	},
	"glob": {
		served: true, folder: "repository-1", files: []entry{{name: "repository-1/main.tf", content: root}},
		location: "/archives/glob/module.tar.gz//*?archive=tar.gz",
	},
	"git":                      {served: true, files: with(), location: "git::$ORIGIN/git/git/.git?ref=v1.0.0"},
	"git-missing-tag":          {served: true, files: with(), location: "git::$ORIGIN/git/git-missing-tag/.git?ref=v9.9.9"},
	"redirect":                 {served: true, files: with(), location: "$ORIGIN/moved/archives/redirect/module.tar.gz"},
	"redirect-to-another-host": {served: true, files: with(), location: "$ORIGIN/elsewhere/archives/redirect-to-another-host/module.tar.gz"},
	"hop":                      {served: true, files: with(), location: "$ORIGIN/hop/hop/it"},
	"plain-http":               {served: true, files: with(), location: "$PLAIN/archives/plain-http/module.tar.gz"},
	"checksum-wrong": {
		served: true, files: with(), location: "/archives/checksum-wrong/module.tar.gz?checksum=sha256:" + strings.Repeat("ab", 32),
	},
	"version-with-v":      {served: true, files: with(), version: "v1.0.0"},
	"version-four-parts":  {served: true, files: with(), version: "1.2.3.4"},
	"version-short":       {served: true, files: with(), version: "1.0"},
	"version-pre-release": {files: with(), version: "1.0.0-rc.1"},

	// Archives.
	"archive-empty":     {files: nil},
	"archive-dot-slash": {served: true, files: []entry{{name: "./", kind: tar.TypeDir}, {name: "./main.tf", content: root}}},
	"archive-pax": {served: true, files: with(entry{name: "é.txt", content: "x"}), header: func(h *tar.Header) {
		h.Format, h.PAXRecords = tar.FormatPAX, map[string]string{"LARDER.note": "x"}
	}},
	"archive-folder-entries": {served: true, files: []entry{
		{name: "modules/", kind: tar.TypeDir}, {name: "main.tf", content: root},
	}},
	"archive-duplicate-entries": {served: true, files: with(entry{name: "main.tf", content: "# again\n" + root})},
	"archive-hard-link":         {served: true, files: with(entry{name: "again.txt", content: "main.tf", kind: tar.TypeLink})},
	"archive-device":            {served: true, files: with(entry{name: "null", kind: tar.TypeChar})},
	"archive-leads-out":         {served: true, files: with(entry{name: "../out.tf", content: root})},
	"archive-absolute":          {served: true, files: with(entry{name: "/out.tf", content: root})},

	// Names and modes.
	"link-dangling":        {files: with(entry{name: "examples/main.tf", content: "../missing.tf", kind: tar.TypeSymlink})},
	"link-dangling-readme": {files: with(entry{name: "README.md", content: "docs/README.md", kind: tar.TypeSymlink})},
	"link-dangling-root":   {files: with(entry{name: "versions.tf", content: "missing.tf", kind: tar.TypeSymlink})},
	"link-inside": {files: with(entry{name: "a.txt", content: "x\n"},
		entry{name: "b.txt", content: "a.txt", kind: tar.TypeSymlink})},
	"link-to-folder": {files: with(entry{name: "modules/a/main.tf", content: root},
		entry{name: "modules/b", content: "a", kind: tar.TypeSymlink})},
	"link-outside":        {files: with(entry{name: "out", content: "../../../etc", kind: tar.TypeSymlink})},
	"link-absolute":       {files: with(entry{name: "out", content: "/etc/hostname", kind: tar.TypeSymlink})},
	"two-readmes":         {files: with(entry{name: "README.md", content: "a\n"}, entry{name: "readme.md", content: "b\n"})},
	"name-with-colon":     {files: with(entry{name: "a:b.txt", content: "x\n"})},
	"name-with-backslash": {files: with(entry{name: `a\b.txt`, content: "x\n"})},
	"name-aux":            {files: with(entry{name: "aux.txt", content: "x\n"})},
	"name-with-colon-tf":  {files: with(entry{name: "a:b.tf", content: "# nothing\n"})},
	"name-not-utf8":       {files: with(entry{name: "caf\xe9.txt", content: "x\n"})},
	"executable":          {files: with(entry{name: "run.sh", content: "#!/bin/sh\n", mode: 0o755})},
	"set-uid":             {files: with(entry{name: "run.sh", content: "#!/bin/sh\n", mode: 0o4755})},
	"unreadable-mode":     {served: true, files: with(entry{name: "a.txt", content: "x\n", mode: 0o200})},
	"large-file":          {files: with(entry{name: "data.bin", content: strings.Repeat("larder\n", 2<<20)})},

	// Texts.
	"text-latin-1":        {files: with(entry{name: "more.tf", content: "# caf\xe9\n"})},
	"text-latin-1-string": {files: with(entry{name: "more.tf", content: "output \"x\" {\n  value = \"caf\xe9\"\n}\n"})},
	"text-utf-16":         {files: with(entry{name: "more.tf", content: utf16Text("# café\n")})},
	"text-bom":            {files: with(entry{name: "more.tf", content: "\ufeff# café\n"})},
	"text-crlf":           {files: with(entry{name: "more.tf", content: "# café\r\n"})},
	"text-nul":            {files: with(entry{name: "more.tf", content: "# a\x00b\n"})},
	"readme-utf-16":       {files: with(entry{name: "README.md", content: utf16Text("# VPC\n")})},
	"ignore-bad-pattern":  {files: with(entry{name: ".terraformignore", content: "[a\n"})},
	"ignore-utf-16":       {files: with(entry{name: ".terraformignore", content: utf16Text("*.txt\n")}, entry{name: "a.txt", content: "x\n"})},
	"ignore-backslash":    {files: with(entry{name: ".terraformignore", content: "docs\\\n"}, entry{name: "docs/a.txt", content: "x\n"})},
	"ignore-everything":   {files: with(entry{name: ".terraformignore", content: "*\n"})},
	"ignore-no-longer":    {files: with(entry{name: ".terraformignore", content: "*.txt\n!a.txt\n"}, entry{name: "a.txt", content: "x\n"})},

	// Configuration.
	"only-json":             {files: []entry{{name: "main.tf.json", content: `{"output": {"id": {"value": "vpc-1"}}}`}}},
	"only-tofu":             {files: []entry{{name: "main.tofu", content: root}}},
	"tofu-beside-tf":        {files: with(entry{name: "main.tofu", content: root})},
	"tofu-broken-beside-tf": {files: with(entry{name: "main.tofu", content: "output {\n"})},
	"override":              {files: with(entry{name: "override.tf", content: root})},
	"override-of-nothing":   {files: with(entry{name: "override.tf", content: "output \"other\" {\n  value = 1\n}\n"})},
	"only-in-modules":       {files: []entry{{name: "modules/x/main.tf", content: root}, {name: "README.md", content: "x\n"}}},
	"only-symbols":          {files: []entry{{name: "names.sym.hcl", content: "# nothing\n"}}},
	"only-readme":           {files: []entry{{name: "README.md", content: "x\n"}}},
	"nested-registry": {files: with(entry{name: "more.tf",
		content: "module \"x\" {\n  source  = \"$HOST/usual/odd/test\"\n  version = \"1.0.0\"\n}\n"})},
	"nested-git": {files: with(entry{name: "more.tf",
		content: "module \"x\" {\n  source = \"git::$ORIGIN/git/git/.git?ref=v1.0.0\"\n}\n"})},
	"nested-missing":   {files: with(entry{name: "more.tf", content: "module \"x\" {\n  source = \"./modules/x\"\n}\n"})},
	"nested-leads-out": {files: with(entry{name: "more.tf", content: "module \"x\" {\n  source = \"../x\"\n}\n"})},
	"nested-no-source": {files: with(entry{name: "more.tf", content: "module \"x\" {\n  count = 1\n}\n"})},
	"nested-same-name": {files: with(
		entry{name: "more.tf", content: "module \"x\" {\n  source = \"./modules/x\"\n}\nmodule \"x\" {\n  source = \"./modules/x\"\n}\n"},
		entry{name: "modules/x/main.tf", content: root})},
	"nested-broken": {files: with(
		entry{name: "more.tf", content: "module \"x\" {\n  source = \"./modules/x\"\n}\n"},
		entry{name: "modules/x/main.tf", content: "output {\n"})},
	"syntax-error":              {files: with(entry{name: "more.tf", content: "output {\n"})},
	"syntax-error-json":         {files: with(entry{name: "more.tf.json", content: "{"})},
	"syntax-error-uncalled":     {files: with(entry{name: "examples/x/main.tf", content: "output {\n"})},
	"syntax-error-in-tests":     {files: with(entry{name: "tests/x.tftest.hcl", content: "run {\n"})},
	"syntax-error-at-root-test": {files: with(entry{name: "x.tftest.hcl", content: "run {\n"})},
	"syntax-error-hidden":       {files: with(entry{name: ".more.tf", content: "output {\n"})},
	"syntax-error-backup":       {files: with(entry{name: "more.tf~", content: "output {\n"})},
	"duplicate-variable":        {files: with(entry{name: "more.tf", content: "variable \"a\" {}\nvariable \"a\" {}\n"})},
	"duplicate-output":          {files: with(entry{name: "more.tf", content: root})},
	"duplicate-local":           {files: with(entry{name: "more.tf", content: "locals {\n  a = 1\n}\nlocals {\n  a = 2\n}\n"})},
	"invalid-name":              {files: with(entry{name: "more.tf", content: "variable \"a b\" {}\n"})},
	"unknown-block":             {files: with(entry{name: "more.tf", content: "varible \"a\" {}\n"})},
	"unknown-argument":          {files: with(entry{name: "more.tf", content: "variable \"a\" {\n  defalt = 1\n}\n"})},
	"unknown-reference":         {files: with(entry{name: "more.tf", content: "output \"x\" {\n  value = var.missing\n}\n"})},
	"unknown-function":          {files: with(entry{name: "more.tf", content: "output \"x\" {\n  value = missing()\n}\n"})},
	"newer-const":               {files: with(entry{name: "more.tf", content: "variable \"a\" {\n  const   = true\n  default = 1\n}\n"})},
	"newer-ephemeral":           {files: with(entry{name: "more.tf", content: "variable \"a\" {\n  ephemeral = true\n}\n"})},
	"newer-action":              {files: with(entry{name: "more.tf", content: "action \"x_y\" \"z\" {\n}\n"})},
	"requires-newer-client":     {files: with(entry{name: "more.tf", content: "terraform {\n  required_version = \">= 99.0\"\n}\n"})},
	"with-backend":              {files: with(entry{name: "more.tf", content: "terraform {\n  backend \"local\" {}\n}\n"})},
	"with-provider-block":       {files: with(entry{name: "more.tf", content: "provider \"terraform\" {\n}\n"})},
	"with-lock-file":            {files: with(entry{name: ".terraform.lock.hcl", content: "# nothing\n"})},
	"with-state":                {files: with(entry{name: "terraform.tfstate", content: "{}\n"})},
	"with-tfvars":               {files: with(entry{name: "terraform.tfvars", content: "a = 1\n"})},
	"with-secret":               {files: with(entry{name: "key.pem", content: "-----BEGIN PRIVATE KEY-----\nMIIEvQ==\n-----END PRIVATE KEY-----\n"})},
	"with-git-folder":           {served: true, files: with(entry{name: ".git/config", content: "[core]\n"})},
	"with-terraform-folder":     {files: with(entry{name: ".terraform/modules/modules.json", content: "{}\n"})},
}
