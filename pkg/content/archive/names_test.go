package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// ways are the three functions that check names. Each takes files with some
// paths and returns its error.
var ways = map[string]func(t *testing.T, paths []string) error{
	"pack": func(t *testing.T, paths []string) error {
		t.Helper()
		files := tree{"main.tf": config}
		for _, p := range paths {
			files[p] = ""
		}
		_, _, err := pack(t, files.write(t), archive.Options{})
		return err
	},
	"read module": func(t *testing.T, paths []string) error {
		t.Helper()
		entries := []entry{file("main.tf", config)}
		for _, p := range paths {
			entries = append(entries, file(p, ""))
		}
		_, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, entries...)))
		return err
	},
	"provider zip": func(t *testing.T, paths []string) error {
		t.Helper()
		members := []member{foo}
		for _, p := range paths {
			members = append(members, plain(p, "", 0o644))
		}
		_, err := readProvider(t, zipOf(t, members...))
		return err
	},
}

// checkRefused checks that an error is ErrInvalid and printable.
func checkRefused(t *testing.T, texts *golden.Texts, err error) {
	t.Helper()
	if !errors.Is(err, registry.ErrInvalid) {
		t.Fatalf("got error %v, want ErrInvalid", err)
	}
	texts.Error(t, err)
	if strings.ContainsAny(err.Error(), "\u202e\u200b\n\x00") {
		t.Errorf("error %q contains characters that do not print", err)
	}
}

func TestNamesRefused(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems cannot have files with these names")
	}
	texts := golden.New(t)
	for _, test := range []struct {
		name  string
		paths []string
	}{
		{"two files by case", []string{"a.md", "A.md"}},
		{"two folders by case", []string{"A/x", "a/y"}},
		{"two folders further down by case", []string{"m/A/x", "m/a/x"}},
		{"a file and a folder by case", []string{"docs", "Docs/x"}},
		{"two files by case beyond ASCII", []string{"É.md", "é.md"}},
		{"two cases of one sigma", []string{"σ.md", "ς.md"}},
		{"two files by normalisation", []string{"caf\u00e9.md", "cafe\u0301.md"}},
		{"two folders by normalisation", []string{"\u00e9/x", "e\u0301/y"}},
		{"two files by case and normalisation", []string{"\u00c9.md", "e\u0301.md"}},
		{"two files by the order of marks", []string{"a\u0323\u0307.md", "a\u0307\u0323.md"}},

		{"a colon", []string{"a:b"}},
		{"a drive", []string{"C:x/y"}},
		{"a less-than sign", []string{"a<b"}},
		{"a greater-than sign", []string{"a>b"}},
		{"a quotation mark", []string{`a"b`}},
		{"a bar", []string{"a|b"}},
		{"a question mark", []string{"a?"}},
		{"an asterisk in a folder", []string{"*/b"}},
		{"a backslash", []string{`a\b`}},

		{"a device", []string{"NUL"}},
		{"a device in small letters", []string{"aux"}},
		{"a device with an extension", []string{"con.txt"}},
		{"a device with two extensions", []string{"prn.tf.json"}},
		{"a device with a space before its extension", []string{"nul .txt"}},
		{"a device as a folder", []string{"modules/aux/main.tf"}},
		{"a serial port", []string{"COM1"}},
		{"a printer's port", []string{"lpt9.md"}},
		{"a port with a superscript", []string{"LPT¹"}},
		{"a port with a superscript and an extension", []string{"com³.tf"}},
		{"the console's input", []string{"CONIN$"}},
		{"the console's output", []string{"conout$.log"}},

		{"a dot at the end", []string{"a."}},
		{"a space at the end", []string{"a "}},
		{"a dot at the end of a folder", []string{"a./b"}},
		{"three dots", []string{"..."}},

		{"text that runs backwards", []string{"a\u202eft.exe"}},
		{"an isolate", []string{"a\u2066b"}},
		{"a mark from right to left", []string{"a\u200fb"}},
		{"a zero-width space", []string{"main\u200b.tf"}},
		{"a zero-width joiner", []string{"ma\u200din.tf"}},
		{"a byte order mark", []string{"\ufeffmain.tf"}},
		{"a soft hyphen", []string{"ma\u00adin.tf"}},
		{"a letter without a shape", []string{"main\u3164.tf"}},
		{"a variation selector", []string{"main\ufe0f.tf"}},
		{"a tag", []string{"main\U000e0041.tf"}},
		{"a line separator", []string{"a\u2028b"}},
		{"a line break", []string{"a\nb"}},
		{"a control character of Latin-1", []string{"a\u0085b"}},
		{"a character for private use", []string{"a\ue000b"}},
		{"what is no UTF-8", []string{"a\xffb"}},

		{"settings of git", []string{"a/.git/config"}},
		{"settings of git in capitals", []string{".GIT/config"}},
		{"settings of git with a dot", []string{".git./config"}},
		{"settings of git by a short name", []string{"x/git~1/config"}},
		{"a short name in capitals", []string{"GIT~1"}},
	} {
		for name, take := range ways {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				if name == "pack" && test.name == "settings of git" {
					t.Skip("Pack excludes .git by a built-in rule")
				}
				checkRefused(t, texts, take(t, test.paths))
			})
		}
	}
}

func TestNamesAccepted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		paths []string
	}{
		{"an ordinary module",
			[]string{"variables.tf", "README.md", "LICENSE", "CHANGELOG.md", "modules/a/main.tf", "modules/b/main.tf",
				"examples/a/main.tf"}},
		{"files of git and GitHub",
			[]string{".github/workflows/x.yml", ".gitignore", ".gitattributes", ".gitmodules", ".gitlab-ci.yml",
				"docs/git.md", "git~10"}},
		{"hidden files", []string{".terraform.lock.hcl", ".pre-commit-config.yaml", ".tflint.hcl", "..a/b"}},
		{"letters of the world",
			[]string{"Lizenz für alle.md", "日本語/読む.md", "Ελλάδα.md", "مرحبا.md",
				"हिन्दी.md", "e\u0301.md"}},
		{"emoji", []string{"🚀.md"}},
		{"spaces inside names", []string{"a b.md", "my docs/read me.md", " a", "Screenshot 9.41\u202fAM.png", "a\u3000b.md"}},
		{"signs",
			[]string{"a+b", "a=b", "a@b", "a,b", "a;b", "a#b", "a%b", "a&b", "(a)", "[a]", "{a}", "a'b", "a!b", "a~", "$a",
				"^a", "-rf"}},
		{"almost devices",
			[]string{"console.tf", "con-fig.tf", "auxiliary/main.tf", "nul1", "COM", "COM0", "com10.tf", "lpt.tf", "_con",
				"x.con", "conin", "prnt"}},
		{"the same name in two folders", []string{"a/x", "b/X", "ab/x", "a-b/x", "a.b/x"}},
		{"names that begin alike", []string{"docs", "docs-a", "docs.md", "docs2/a"}},
	} {
		for name, take := range ways {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				if err := take(t, test.paths); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestPackRefusesIncludedGit checks that even --include cannot add the settings
// of git. A repository in a module runs its hooks when someone uses git in it.
func TestPackRefusesIncludedGit(t *testing.T) {
	t.Parallel()
	dir := tree{"main.tf": config, ".git/config": ""}.write(t)
	_, _, err := pack(t, dir, archive.Options{Include: []string{".git/config"}})
	checkRefused(t, golden.New(t), err)
}

// TestPackIgnoredNames checks that files excluded by .terraformignore may have
// any name.
func TestPackIgnoredNames(t *testing.T) {
	t.Parallel()
	files := tree{"main.tf": config, ".terraformignore": "MAIN.TF\nnul*\n", "MAIN.TF": "", "nul": ""}
	packed, _, err := pack(t, files.write(t), archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names(t, packed), " "); got != ".terraformignore main.tf" {
		t.Errorf("packed %s", got)
	}
}

func folder(name string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, ""}
}

// TestReadModuleFolders checks that the rules for files apply to entries for
// folders.
func TestReadModuleFolders(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	main := file("main.tf", config)
	for _, test := range []struct {
		name    string
		entries []entry
	}{
		{"two folders by case", []entry{folder("A/"), folder("a/")}},
		{"a folder and one of a file", []entry{folder("A/"), file("a/x", "")}},
		{"a folder and a file by case", []entry{folder("MAIN.TF/")}},
		{"a folder that is a file", []entry{folder("a/"), file("a", "")}},
		{"a device", []entry{folder("nul/")}},
		{"settings of git", []entry{folder(".git/")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, append(test.entries, main)...)))
			checkRefused(t, texts, err)
		})
	}
	twice := archiveOf(t, folder("a/"), folder("a/"), main, file("a/x", ""), folder("a/b"))
	_, err := archive.ReadModule(t.Context(), bytes.NewReader(twice))
	if err != nil {
		t.Errorf("a folder twice: %v", err)
	}
}

func TestReadModuleModes(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	moded := func(mode int64) error {
		packed := archiveOf(t, file("main.tf", config), entry{tar.Header{Name: "run.sh", Mode: mode}, ""})
		_, err := archive.ReadModule(t.Context(), bytes.NewReader(packed))
		return err
	}
	for _, mode := range []int64{0o4755, 0o2755, 0o1644, 0o6755, 0o7777, 0o106755} {
		t.Run(fmt.Sprintf("%#o", mode), func(t *testing.T) {
			t.Parallel()
			checkRefused(t, texts, moded(mode))
		})
	}
	for _, mode := range []int64{0, 0o600, 0o644, 0o755, 0o777, 0o100644} {
		if err := moded(mode); err != nil {
			t.Errorf("mode %#o: %v", mode, err)
		}
	}
	sticky := folder("a/")
	sticky.Mode = 0o1777
	_, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, sticky, file("main.tf", config))))
	checkRefused(t, texts, err)
}

// TestReadModuleManyNames checks that the work of comparing all names is
// limited.
func TestReadModuleManyNames(t *testing.T) {
	t.Parallel()
	entries := []entry{file("main.tf", config)}
	for i := range 17_000 {
		entries = append(entries, file(fmt.Sprintf("%s%d", strings.Repeat("A/", 500), i), ""))
	}
	_, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, entries...)))
	checkRefused(t, golden.New(t), err)
}
