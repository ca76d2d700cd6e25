package archive

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/larder-registry/larder/pkg/registry"
)

// This file contains the rules for names in archives. [Pack], [ReadModule] and
// [ReadProvider] apply the same rules, so every system unpacks the files that
// someone reviewed on another one.

const (
	maxPath  = 1024     // bytes
	maxName  = 255      // bytes of one part of a path, the limit of common file systems
	maxPaths = 16 << 20 // bytes of all paths in a module's archive
)

// The hints for a rejected name, and for two names that conflict.
const (
	renameInModule    = "Rename it, or exclude it in .terraformignore."
	renameOneInModule = "Rename one of them, or exclude one in .terraformignore."
	renameInZip       = "Rename it, and zip the files again from within their folder."
	renameOneInZip    = "Rename one of them, and zip the files again."
)

// checkPath returns an error if a path does not unpack to the same place on
// every system.
func checkPath(p string) error {
	if len(p) > maxPath {
		return fmt.Errorf("it is longer than %d bytes", maxPath)
	}
	switch r := invisible(p); {
	case r == utf8.RuneError:
		return errors.New("it is not valid UTF-8")
	case r >= 0:
		return fmt.Errorf("it contains %U, which is invisible or reorders text", r)
	case !fs.ValidPath(p) || p == ".":
		return errors.New("it is not a relative path below the archive's root")
	}
	for name := range strings.SplitSeq(p, "/") {
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("one of its parts is longer than %d bytes", maxName)
	}
	if at := strings.IndexAny(name, `\<>:"|?*`); at >= 0 {
		return fmt.Errorf("it contains %q, which Windows does not allow in names", name[at])
	}
	trimmed := strings.TrimRight(name, ". ")
	// Windows uses git~1 as the short name of .git.
	if strings.EqualFold(trimmed, ".git") || strings.EqualFold(trimmed, "git~1") {
		return fmt.Errorf("git reads settings and hooks from its part %q", name)
	}
	if trimmed != name {
		return fmt.Errorf("its part %q ends in a dot or a space, which Windows removes", name)
	}
	if isDevice(name) {
		return fmt.Errorf("its part %q is a device name on Windows", name)
	}
	return nil
}

// quotePath returns the first 255 bytes of a path in quotes. If the path
// contains invisible characters, it escapes everything outside ASCII.
func quotePath(p string) string {
	if invisible(p) >= 0 {
		return fmt.Sprintf("%+.255q", p)
	}
	return fmt.Sprintf("%.255q", p)
}

// isDevice reports whether Windows reserves a name for a device, with or
// without an extension.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file
func isDevice(name string) bool {
	base, _, _ := strings.Cut(strings.ToUpper(name), ".")
	switch base = strings.TrimRight(base, " "); base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	port, found := strings.CutPrefix(base, "COM")
	if !found {
		port, found = strings.CutPrefix(base, "LPT")
	}
	return found && utf8.RuneCountInString(port) == 1 && strings.Contains("123456789¹²³", port)
}

// invisible returns the first character of s that is invisible or reorders the
// text around it. It returns utf8.RuneError for bytes that are not UTF-8, and
// -1 if there is no such character.
func invisible(s string) rune {
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsGraphic(r) ||
			unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return r
		}
	}
	return -1
}

// checkPaths returns an error if two paths cannot coexist on every system. Some
// systems ignore case or Unicode normalization. The path of a folder ends in a
// slash. Folders are compared too, even if they have no entries of their own.
func checkPaths(paths []string) error {
	_, _, err := findConflict(paths)
	return err
}

// findConflict returns two paths that cannot coexist, with the error of [checkPaths].
func findConflict(paths []string) (first, second string, _ error) {
	type folded struct{ path, folded string }
	all := make([]folded, len(paths))
	for i, p := range paths {
		all[i] = folded{p, foldPath(p)}
	}
	// This order puts the content of a folder directly after the folder.
	slices.SortFunc(all, func(a, b folded) int {
		return cmp.Or(cmp.Compare(a.folded, b.folded), cmp.Compare(a.path, b.path))
	})
	for i := range max(0, len(all)-1) {
		if err := checkPair(all[i].path, all[i+1].path); err != nil {
			return all[i].path, all[i+1].path, err
		}
	}
	return "", "", nil
}

// checkPair compares two paths that are neighbors in the order of [checkPaths].
func checkPair(first, second string) error {
	a, b := first, second
	for {
		partA, restA, moreA := strings.Cut(a, "/")
		partB, restB, moreB := strings.Cut(b, "/")
		switch {
		case partA != partB && foldPath(partA) != foldPath(partB):
			return nil
		case partA != partB && norm.NFC.String(partA) == norm.NFC.String(partB):
			return fmt.Errorf("%+q and %+q are the same name on macOS: they differ only in Unicode normalization",
				first, second)
		case partA != partB:
			return fmt.Errorf("%s and %s are the same name on Windows and macOS: they differ only in case", first, second)
		case moreA != moreB:
			return fmt.Errorf("%s is both a file and a folder", strings.TrimSuffix(first, "/"))
		case !moreA && partA == "": // entries for the same folder
			return nil
		case !moreA:
			return fmt.Errorf("it contains %s twice", first)
		}
		a, b = restA, restB
	}
}

// foldPath returns a form that is equal for all paths that may name the same
// file. Its separator sorts before every character of a name.
//
// Source: Unicode Standard, section 3.13, "canonical caseless match".
func foldPath(p string) string {
	p = norm.NFD.String(strings.ToLower(strings.ToUpper(norm.NFD.String(p))))
	return strings.ReplaceAll(p, "/", "\x00")
}

// checkHeader checks the name and the mode of an entry of a module's tar. It
// returns the path for [checkPaths]. Modes matter because clients apply them
// when they unpack, including set-user-ID bits.
func checkHeader(header *tar.Header) (string, error) {
	p := header.Name
	if header.Typeflag == tar.TypeDir {
		p = strings.TrimSuffix(p, "/")
	}
	if err := checkPath(p); err != nil {
		err := fmt.Errorf("%w path %s in an archive: %w", registry.ErrInvalid, quotePath(p), err)
		return "", registry.WithHint(err, renameInModule)
	}
	if header.Typeflag == tar.TypeDir {
		p += "/"
	}
	if header.Mode&0o7000 != 0 {
		return "", registry.WithHint(invalidArchive("%s has a special mode", p),
			"Run `chmod u-s,g-s,-t` on it, and pack the module again.")
	}
	return p, nil
}

// checkModulePaths applies [checkPaths] to the entries of a module's tar.
func checkModulePaths(paths []string) error {
	if err := checkPaths(paths); err != nil {
		return registry.WithHint(invalidArchive("%w", err), renameOneInModule)
	}
	return nil
}
