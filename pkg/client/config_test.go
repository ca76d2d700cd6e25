package client_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

func silent() *log.Logger { return log.New(io.Discard, "", 0) }

// home returns a new folder with files.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// token returns a configuration's token for a host.
func token(t *testing.T, config *client.Config, host string) string {
	t.Helper()
	name, err := svchost.ForComparison(host)
	if err != nil {
		t.Fatal(err)
	}
	found, err := config.ForHost(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := found.(svcauth.HostCredentialsToken)
	return string(got)
}

func credentials(host, token string) string {
	return "credentials \"" + host + "\" {\n  token = \"" + token + "\"\n}\n"
}

func TestTokens(t *testing.T) {
	t.Parallel()
	type paths = map[string]string
	own := func(token string) string { return credentials("registry.example.com", token) }
	tests := map[string]struct {
		system  string   // if empty, linux
		environ []string // HOME is replaced by the folder with the files
		files   paths    // below that folder
		host    string   // if empty, registry.example.com
		want    string
	}{
		"nothing":              {},
		"variable":             {environ: []string{"TF_TOKEN_registry_example_com=a"}, want: "a"},
		"variable with dots":   {environ: []string{"TF_TOKEN_registry.example.com=a"}, want: "a"},
		"variable in capitals": {environ: []string{"TF_TOKEN_REGISTRY_EXAMPLE_COM=a"}, want: "a"},
		"variable with hyphens": {
			environ: []string{"TF_TOKEN_my__registry_example_com=a"}, host: "my-registry.example.com", want: "a",
		},
		"variable in punycode": {environ: []string{"TF_TOKEN_xn____caf__dma_fr=a"}, host: "café.fr", want: "a"},
		"variable in letters":  {environ: []string{"TF_TOKEN_café.fr=a"}, host: "café.fr", want: "a"},
		"variable with a port": {
			environ: []string{"TF_TOKEN_registry.example.com:8443=a"}, host: "registry.example.com:8443", want: "a",
		},
		"variable of another port": {environ: []string{"TF_TOKEN_registry.example.com:8443=a"}},
		"default port":             {environ: []string{"TF_TOKEN_registry.example.com:443=a"}, want: "a"},
		"variable of no host":      {environ: []string{"TF_TOKEN_=a", "TF_TOKEN_a..b=a", "TF_TOKEN"}},
		"last variable": {
			environ: []string{"TF_TOKEN_registry_example_com=a", "TF_TOKEN_registry.example.com=b"}, want: "b",
		},
		"token with equals": {environ: []string{"TF_TOKEN_registry_example_com=a=="}, want: "a=="},
		"variable before file": {
			environ: []string{"TF_TOKEN_registry_example_com=a"}, files: paths{".tofurc": own("b")}, want: "a",
		},
		"empty variable before file": {
			environ: []string{"TF_TOKEN_registry_example_com="}, files: paths{".tofurc": own("b")},
		},
		"tofurc":       {files: paths{".tofurc": own("b")}, want: "b"},
		"terraformrc":  {files: paths{".terraformrc": own("b")}, want: "b"},
		"both":         {files: paths{".terraformrc": own("a"), ".tofurc": own("b")}, want: "b"},
		"each its own": {files: paths{".terraformrc": own("a"), ".tofurc": credentials("other.example.com", "b")}, want: "a"},
		"file with a port": {
			files: paths{".tofurc": credentials("registry.example.com:8443", "b")}, host: "registry.example.com:8443",
			want: "b",
		},
		"file in letters": {files: paths{".tofurc": credentials("Café.fr", "b")}, host: "café.fr", want: "b"},
		"no token":        {files: paths{".tofurc": `credentials "registry.example.com" {}`}},
		"other token":     {files: paths{".tofurc": `credentials "registry.example.com" { token = 5 }`}},
		"login": {
			files: paths{".terraform.d/credentials.tfrc.json": `{"credentials":{"registry.example.com":{"token":"c"}}}`},
			want:  "c",
		},
		"folder before file": {files: paths{".tofurc": own("b"), ".terraform.d/x.tfrc": own("c")}, want: "c"},
		"last of the folder": {
			files: paths{".terraform.d/x.tfrc": own("c"), ".terraform.d/a.tfrc": own("b"), ".terraform.d/y.tf": "{{{"},
			want:  "c",
		},
		"newer place": {environ: []string{"XDG_CONFIG_HOME=HOME/c"}, files: paths{"c/opentofu/tofurc": own("b")}, want: "b"},
		"newer place is not where an old one is": {
			environ: []string{"XDG_CONFIG_HOME=HOME/c"}, files: paths{"c/opentofu/tofurc": own("b"), ".terraformrc": ""},
		},
		"newer folder": {
			environ: []string{"XDG_CONFIG_HOME=HOME/c"},
			files:   paths{"c/opentofu/credentials.tfrc.json": `{"credentials":{"registry.example.com":{"token":"c"}}}`},
			want:    "c",
		},
		"newer folder is not where an old one is": {
			environ: []string{"XDG_CONFIG_HOME=HOME/c"},
			files:   paths{"c/opentofu/x.tfrc": own("c"), ".terraform.d/y.tfrc": ""},
		},
		"named file": {
			environ: []string{"TF_CLI_CONFIG_FILE=HOME/x"}, files: paths{"x": own("d"), ".tofurc": own("b")}, want: "d",
		},
		"named file alone": {
			environ: []string{"TF_CLI_CONFIG_FILE=HOME/x"},
			files:   paths{"x": "", ".tofurc": own("b"), ".terraform.d/y.tfrc": own("b")},
		},
		"older name": {environ: []string{"TERRAFORM_CONFIG=HOME/x"}, files: paths{"x": own("d")}, want: "d"},
		"JSON": {
			environ: []string{"TF_CLI_CONFIG_FILE=HOME/x"},
			files:   paths{"x": `{"credentials":{"registry.example.com":{"token":"d"}}}`}, want: "d",
		},
		"Windows": {system: "windows", environ: []string{"AppData=HOME/a"}, files: paths{"a/tofu.rc": own("b")}, want: "b"},
		"older Windows": {
			system: "windows", environ: []string{"APPDATA=HOME/a"}, files: paths{"a/terraform.rc": own("b")}, want: "b",
		},
		"Windows folder": {
			system: "windows", environ: []string{"APPDATA=HOME/a"}, files: paths{"a/terraform.d/x.tfrc": own("b")}, want: "b",
		},
		"other settings": {
			files: paths{".tofurc": "plugin_cache_dir = \"/nowhere\"\ndisable_checkpoint = true\n" +
				"provider_installation {\n  direct {}\n}\n" + own("b")},
			want: "b",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := home(t, test.files)
			var environ []string
			for _, variable := range test.environ {
				environ = append(environ, strings.Replace(variable, "HOME/", dir+string(filepath.Separator), 1))
			}
			system, host := test.system, test.host
			if system == "" {
				system = "linux"
			}
			if host == "" {
				host = "registry.example.com"
			}
			config, err := client.LoadConfigOn(environ, dir, system)
			if err != nil {
				t.Fatal(err)
			}
			if got := token(t, config, host); got != test.want {
				t.Errorf("the token is %q, want %q", got, test.want)
			}
		})
	}
}

func TestHostBlocks(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		t.Errorf("it was asked for %s", r.URL)
		http.NotFound(rw, r)
	})
	for name, file := range map[string]string{
		"HCL": "host \"registry.example.com\" {\n  services = {\n    \"providers.v1\" = " +
			"\"https://other.example.com/p\"\n    \"rel.v1\" = \"/r/\"\n    \"plain.v1\" = \"http://127.0.0.1:8080/\"\n  " +
			"}\n}\nhost \"none.example.com\" {}\n",
		"JSON": `{"host":{"registry.example.com":{"services":{"providers.v1":"https://other.example.com/p",
			"rel.v1":"/r/","plain.v1":"http://127.0.0.1:8080/"}},
			"none.example.com":{"services":{}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			config, err := client.LoadConfig(nil, home(t, map[string]string{".tofurc": file}))
			if err != nil {
				t.Fatalf("%v", err)
			}
			c := client.New(config, "larder/test", w.transport)
			for id, want := range map[string]string{
				"providers.v1": "https://other.example.com/p/", "rel.v1": "https://registry.example.com/r/",
				"plain.v1": "http://127.0.0.1:8080/",
			} {
				service, err := c.Service(t.Context(), "registry.example.com", id)
				if err != nil || service.URL.String() != want {
					t.Errorf("%s is %+v, %v", id, service, err)
				}
			}
			for _, host := range []string{"registry.example.com", "none.example.com"} {
				_, err = c.Service(t.Context(), host, "modules.v1")
				check(t, texts, err, registry.ErrNotFound)
			}
		})
	}
}

func TestMalformedConfig(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	tests := map[string]string{
		"no HCL":              "credentials \"registry.example.com\" {\n  token = " + secret + "\n",
		"string not closed":   "credentials \"registry.example.com\" {\n  token = \"" + secret + "\n}",
		"no block":            "credentials = \"" + secret + "\"",
		"no labels":           "credentials { token = \"" + secret + "\" }",
		"no JSON":             "{\"credentials\":\n{\"registry.example.com\":{\"token\":" + secret + "}}}",
		"JSON of other types": `{"credentials":["` + secret + `"]}`,
		"no host":             credentials("https://"+secret, "x"),
		"punycode":            credentials("xn--caf-dma.fr", secret),
		"no host for a host":  "host \"a b\" {}",
		"two programs":        "credentials_helper \"a\" {}\ncredentials_helper \"b\" {}",
		"number too large":    "credentials \"registry.example.com\" { token = 99999999999999999999999 }",
		"nested":              strings.Repeat("[", 1<<19),
		"byte order mark":     "\ufeff" + credentials("registry.example.com", secret),
		"UTF-16":              "\xFF\xFEa\x00",
		"too large":           strings.Repeat("#", client.MaxConfig+1),
	}
	for name, file := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := home(t, map[string]string{".tofurc": file})
			_, err := client.LoadConfig(nil, dir)
			check(t, texts, err, registry.ErrInvalid, dir, "DIR")
			if !strings.Contains(err.Error(), filepath.Join(dir, ".tofurc")) {
				t.Errorf("error %q does not name the file", err)
			}
		})
	}
}

func TestConfigThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := home(t, map[string]string{"x/y": ""})
	// The CLIs only warn about it.
	if _, err := client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "none")}, dir); err != nil {
		t.Error(err)
	}
	if _, err := client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "x")}, dir); err == nil {
		t.Error("a folder was read")
	}
	if err := os.Mkdir(filepath.Join(dir, ".tofurc"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := client.LoadConfig(nil, dir); err == nil {
		t.Error("a folder was read")
	}
}

// The cases run one after the other, because a program that is open for writing
// cannot be executed. A process that starts has the open files of its parent.
func TestCredentialsProgram(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	if runtime.GOOS == "windows" {
		t.Skip("the program is a shell script")
	}
	const prints = "#!/bin/sh\n[ \"$*\" = \"--of me get registry.example.com\" ] || exit 9\n"
	const block = "credentials_helper \"keeper\" {\n  args = [\"--of\", \"me\"]\n}\n"
	tests := map[string]struct {
		files   map[string]string
		environ []string
		want    string
		err     error
	}{
		"token": {
			files: map[string]string{".terraform.d/plugins/terraform-credentials-keeper": prints + `echo '{"token":"p"}'`},
			want:  "p",
		},
		"newer of two": {files: map[string]string{".terraform.d/plugins/terraform-credentials-keeper_v1.9.0": prints +
			`echo '{"token":"old"}'`,
			".terraform.d/plugins/linux_" + runtime.GOARCH + "/terraform-credentials-keeper_v1.10.0_x4": prints +
				`echo '{"token":"new"}'`}, want: "new"},
		"newer place": {environ: []string{"XDG_DATA_HOME=HOME/d"},
			files: map[string]string{
				"d/opentofu/plugins/terraform-credentials-keeper": prints + `echo '{"token":"p"}'`,
			}, want: "p"},
		"environment": {
			environ: []string{"KEPT=e"},
			files: map[string]string{
				".terraform.d/plugins/terraform-credentials-keeper": prints + `echo "{\"token\":\"$KEPT\"}"`,
			},
			want: "e",
		},
		"file before program": {files: map[string]string{
			".terraform.d/plugins/terraform-credentials-keeper": prints +
				`echo '{"token":"p"}'`,
			".terraform.d/x.tfrc": credentials("registry.example.com", "f")}, want: "f"},
		"no token": {
			files: map[string]string{".terraform.d/plugins/terraform-credentials-keeper": prints + `echo '{}'`},
		},
		"not there":     {files: map[string]string{".terraform.d/plugins/terraform-credentials-other": prints}},
		"only a folder": {files: map[string]string{".terraform.d/plugins/terraform-credentials-keeper/x": prints}},
		"fails": {
			files: map[string]string{
				".terraform.d/plugins/terraform-credentials-keeper": "#!/bin/sh\necho " + secret + " | tee /dev/stderr\nexit 1",
			},
			err: registry.ErrUnauthenticated,
		},
		"prints no JSON": {
			files: map[string]string{".terraform.d/plugins/terraform-credentials-keeper": prints + "echo " + secret},
			err:   registry.ErrInvalid,
		},
		"prints without end": {
			files: map[string]string{".terraform.d/plugins/terraform-credentials-keeper": prints + "exec yes " + secret},
			err:   registry.ErrUnauthenticated,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.files[".tofurc"] = block
			dir := home(t, test.files)
			environ := []string{"PATH=" + os.Getenv("PATH")}
			for _, variable := range test.environ {
				environ = append(environ, strings.Replace(variable, "HOME/", dir+"/", 1))
			}
			config, err := client.LoadConfigOn(environ, dir, "linux")
			if err != nil {
				t.Fatalf("%v", err)
			}
			found, err := config.ForHost(t.Context(), "registry.example.com")
			check(t, texts, err, test.err, dir, "DIR")
			if got, _ := found.(svcauth.HostCredentialsToken); string(got) != test.want {
				t.Errorf("the token is %q, want %q", got, test.want)
			}
			if test.err == nil {
				return
			}
			_, err = client.New(config, "larder/test", nil).Service(t.Context(), "registry.example.com", "providers.v1")
			check(t, texts, err, test.err, dir, "DIR")
		})
	}

	// The program runs once for each host, and the end of the context ends it.
	dir := home(t, map[string]string{".tofurc": `credentials_helper "keeper" {}`,
		".terraform.d/plugins/terraform-credentials-keeper": "#!/bin/sh\necho x >> \"$COUNT\"\n[ \"$2\" = " +
			"slow.example.com ] && sleep 60\necho '{\"token\":\"p\"}'"})
	count := filepath.Join(dir, "count")
	config, err := client.LoadConfigOn([]string{"PATH=" + os.Getenv("PATH"), "COUNT=" + count}, dir, "linux")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := token(t, config, "registry.example.com"); got != "p" {
			t.Errorf("the token is %q", got)
		}
	}
	if calls, err := os.ReadFile(count); err != nil || string(calls) != "x\n" {
		t.Errorf("it was called: %q, %v", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := config.ForHost(ctx, "slow.example.com"); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

// Errors of malformed files never quote the file.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		credentials("registry.example.com", secret),
		"credentials \"registry.example.com\" {\n  token = " + secret,
		`{"credentials":{"registry.example.com":{"token":"` + secret + `"}}}`,
		`{"credentials":` + secret,
		"host \"a.example.com:8443\" { services = { \"modules.v1\" = \"/x\", \"login.v1\" = { ports = [1, 2] } } }",
		"credentials_helper \"" + secret + "\" { args = [\"a\"] }",
		"token = <<EOT\n" + secret + "\nEOT\n",
		"a = 0x" + strings.Repeat("f", 20), "a = 1e999", `a = "${` + secret + `}"`, "/* " +
			secret, "{", "[", "", "\x00", "\ufeff{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := client.ParseSettings(data); err != nil &&
			(strings.Contains(err.Error(), secret) || len(err.Error()) > 200) {
			t.Errorf("error of %q is %q", data, err)
		}
	})
}
