package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// ways are the three ways into a registry. Each takes files of some paths, or
// returns why not.
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

// refused checks that an error is ErrInvalid, says each of some things, and is
// printable.
func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	if !errors.Is(err, registry.ErrInvalid) {
		t.Fatalf("got error %v, want ErrInvalid", err)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
	if strings.ContainsAny(err.Error(), "\u202e\u200b\n\x00") {
		t.Errorf("error %q holds characters that do not print", err)
	}
}

func TestNamesRefused(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems cannot have files with these names")
	}
	for _, test := range []struct {
		name  string
		paths []string
		want  []string // in the error
	}{
		{"two files by case", []string{"a.md", "A.md"}, []string{"A.md and a.md are one"}},
		{"two folders by case", []string{"A/x", "a/y"}, []string{"A/x and a/y are one"}},
		{"two folders further down by case", []string{"m/A/x", "m/a/x"}, []string{"m/A/x and m/a/x are one"}},
		{"a file and a folder by case", []string{"docs", "Docs/x"}, []string{"docs and Docs/x are one"}},
		{"two files by case beyond ASCII", []string{"É.md", "é.md"}, []string{"É.md and é.md are one"}},
		{"two cases of one sigma", []string{"σ.md", "ς.md"}, []string{"are one"}},
		{"two files by normalisation",
			[]string{"caf\u00e9.md", "cafe\u0301.md"}, []string{`cafe\u0301.md" and "caf\u00e9.md" are one`}},
		{"two folders by normalisation", []string{"\u00e9/x", "e\u0301/y"}, []string{`\u00e9/x`, `e\u0301/y`, "are one"}},
		{"two files by case and normalisation", []string{"\u00c9.md", "e\u0301.md"}, []string{"are one"}},
		{"two files by the order of marks", []string{"a\u0323\u0307.md", "a\u0307\u0323.md"}, []string{"are one"}},

		{"a colon", []string{"a:b"}, []string{`"a:b"`, "Windows"}},
		{"a drive", []string{"C:x/y"}, []string{`"C:x/y"`, "Windows"}},
		{"a less-than sign", []string{"a<b"}, []string{`"a<b"`, "Windows"}},
		{"a greater-than sign", []string{"a>b"}, []string{`"a>b"`, "Windows"}},
		{"a quotation mark", []string{`a"b`}, []string{`a\"b`, "Windows"}},
		{"a bar", []string{"a|b"}, []string{`"a|b"`, "Windows"}},
		{"a question mark", []string{"a?"}, []string{`"a?"`, "Windows"}},
		{"an asterisk in a folder", []string{"*/b"}, []string{`"*/b"`, "Windows"}},
		{"a backslash", []string{`a\b`}, []string{`a\\b`, "Windows"}},

		{"a device", []string{"NUL"}, []string{`"NUL"`, "device"}},
		{"a device in small letters", []string{"aux"}, []string{`"aux"`, "device"}},
		{"a device with an extension", []string{"con.txt"}, []string{`"con.txt"`, "device"}},
		{"a device with two extensions", []string{"prn.tf.json"}, []string{`"prn.tf.json"`, "device"}},
		{"a device with a space before its extension", []string{"nul .txt"}, []string{`"nul .txt"`, "device"}},
		{"a device as a folder", []string{"modules/aux/main.tf"}, []string{`"modules/aux/main.tf"`, `"aux"`, "device"}},
		{"a serial port", []string{"COM1"}, []string{`"COM1"`, "device"}},
		{"a printer's port", []string{"lpt9.md"}, []string{`"lpt9.md"`, "device"}},
		{"a port with a superscript", []string{"LPT¹"}, []string{`"LPT¹"`, "device"}},
		{"a port with a superscript and an extension", []string{"com³.tf"}, []string{`"com³.tf"`, "device"}},
		{"the console's input", []string{"CONIN$"}, []string{`"CONIN$"`, "device"}},
		{"the console's output", []string{"conout$.log"}, []string{`"conout$.log"`, "device"}},

		{"a dot at the end", []string{"a."}, []string{`"a."`, "ends in a dot or a space"}},
		{"a space at the end", []string{"a "}, []string{`"a "`, "ends in a dot or a space"}},
		{"a dot at the end of a folder", []string{"a./b"}, []string{`"a./b"`, "ends in a dot or a space"}},
		{"three dots", []string{"..."}, []string{`"..."`, "ends in a dot or a space"}},

		{"text that runs backwards", []string{"a\u202eft.exe"}, []string{`a\u202eft.exe`, "U+202E"}},
		{"an isolate", []string{"a\u2066b"}, []string{`a\u2066b`, "U+2066"}},
		{"a mark from right to left", []string{"a\u200fb"}, []string{`a\u200fb`, "U+200F"}},
		{"a zero-width space", []string{"main\u200b.tf"}, []string{`main\u200b.tf`, "U+200B"}},
		{"a zero-width joiner", []string{"ma\u200din.tf"}, []string{`ma\u200din.tf`, "U+200D"}},
		{"a byte order mark", []string{"\ufeffmain.tf"}, []string{`\ufeffmain.tf`, "U+FEFF"}},
		{"a soft hyphen", []string{"ma\u00adin.tf"}, []string{`ma\u00adin.tf`, "U+00AD"}},
		{"a letter without a shape", []string{"main\u3164.tf"}, []string{`main\u3164.tf`, "U+3164"}},
		{"a variation selector", []string{"main\ufe0f.tf"}, []string{`main\ufe0f.tf`, "U+FE0F"}},
		{"a tag", []string{"main\U000e0041.tf"}, []string{`main\U000e0041.tf`, "U+E0041"}},
		{"a line separator", []string{"a\u2028b"}, []string{`a\u2028b`, "U+2028"}},
		{"a line break", []string{"a\nb"}, []string{`a\nb`, "U+000A"}},
		{"a control character of Latin-1", []string{"a\u0085b"}, []string{`a\u0085b`, "U+0085"}},
		{"a character for private use", []string{"a\ue000b"}, []string{`a\ue000b`, "U+E000"}},
		{"what is no UTF-8", []string{"a\xffb"}, []string{`a\xffb`}},

		{"settings of git", []string{"a/.git/config"}, []string{`"a/.git/config"`, `".git"`}},
		{"settings of git in capitals", []string{".GIT/config"}, []string{`".GIT/config"`, `".GIT"`, "git"}},
		{"settings of git with a dot", []string{".git./config"}, []string{`".git./config"`, "git"}},
		{"settings of git by a short name", []string{"x/git~1/config"}, []string{`"x/git~1/config"`, `"git~1"`}},
		{"a short name in capitals", []string{"GIT~1"}, []string{`"GIT~1"`, "git"}},
	} {
		for name, take := range ways {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				if name == "pack" && test.name == "settings of git" {
					t.Skip("Pack leaves out .git on its own account")
				}
				want := append(test.want, "ename") // rename, or Rename
				if name == "pack" {
					want = append(want, ".terraformignore")
				}
				refused(t, take(t, test.paths), want...)
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

// Nobody can include the settings of git either: a repository in a module runs
// its hooks where somebody uses git in it.
func TestPackRefusesIncludedGit(t *testing.T) {
	t.Parallel()
	dir := tree{"main.tf": config, ".git/config": ""}.write(t)
	_, _, err := pack(t, dir, archive.Options{Include: []string{".git/config"}})
	refused(t, err, `".git/config"`)
}

// What .terraformignore leaves out may have any name.
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

// Entries for folders are held to the same rules as files.
func TestReadModuleFolders(t *testing.T) {
	t.Parallel()
	main := file("main.tf", config)
	for _, test := range []struct {
		name    string
		entries []entry
		want    string
	}{
		{"two folders by case", []entry{folder("A/"), folder("a/")}, "A/ and a/ are one"},
		{"a folder and one of a file", []entry{folder("A/"), file("a/x", "")}, "A/ and a/x are one"},
		{"a folder and a file by case", []entry{folder("MAIN.TF/")}, "main.tf and MAIN.TF/ are one"},
		{"a folder that is a file", []entry{folder("a/"), file("a", "")}, "a is both a file and a folder"},
		{"a device", []entry{folder("nul/")}, "device"},
		{"settings of git", []entry{folder(".git/")}, ".git"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, append(test.entries, main)...)))
			refused(t, err, test.want)
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
	moded := func(mode int64) error {
		packed := archiveOf(t, file("main.tf", config), entry{tar.Header{Name: "run.sh", Mode: mode}, ""})
		_, err := archive.ReadModule(t.Context(), bytes.NewReader(packed))
		return err
	}
	for _, mode := range []int64{0o4755, 0o2755, 0o1644, 0o6755, 0o7777, 0o106755} {
		t.Run(fmt.Sprintf("%#o", mode), func(t *testing.T) {
			t.Parallel()
			refused(t, moded(mode), "run.sh", "special mode")
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
	refused(t, err, "a/", "special mode")
}

// What all names take to compare is bounded.
func TestReadModuleManyNames(t *testing.T) {
	t.Parallel()
	entries := []entry{file("main.tf", config)}
	for i := range 17_000 {
		entries = append(entries, file(fmt.Sprintf("%s%d", strings.Repeat("A/", 500), i), ""))
	}
	_, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, entries...)))
	refused(t, err, "16 MiB of paths")
}
